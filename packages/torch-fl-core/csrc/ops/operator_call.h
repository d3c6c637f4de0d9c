// One call of another device type's kernel on tensors of a flagos device: of the host (source `cpu`) or of
// the companion (source `boxed`).
//
// The order of use: see() every tensor argument, begin(), alias() each of them for the kernel, run the kernel
// under keys(), finishWrites(), then result() on what it returned. The roads:
//
//  * companion: the alias is a fresh TensorImpl that carries only the companion's backend key, over a
//    StorageImpl that borrows the same memory. The caller's tensors are never changed, so any number of
//    threads may share them. A fresh result is relabelled in place, while nobody else holds it.
//  * host, zero copy, where the host may touch device memory: the same with the CPU's key. What the kernel
//    allocates comes from the device's allocator (host_region.h).
//  * host, staged, elsewhere: one buffer on the host per storage that is touched, filled with the range of
//    bytes that the arguments span, and written back for the arguments that the kernel writes. Arguments that
//    share a storage share the buffer.
//
// The alias needs a storage of its own: views made inside a kernel take their device from the storage, not
// from the tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <optional>

#include "csrc/ops/alias.h"
#include "csrc/ops/alias_slots.h"
#include "csrc/ops/host_region.h"
#include "csrc/ops/router.h"
#include "csrc/runtime/companion.h"
#include "csrc/runtime/devices.h"

namespace flagos::ops {

// How an operator uses a tensor argument.
enum class Access : uint8_t {
  Read,
  Write,      // read and written: in-place
  Overwrite,  // every element is written and none read: the destination of copy_
};

// What sets an operator apart from the common kind.
struct OperatorTraits {
  // Takes tensors of the host of any shape beside device tensors (indices, lengths).
  bool host_tensors_allowed = false;
  // The kernel itself counts versions of what it writes (_foreach_*_): aliases share the caller's counters.
  bool counts_versions = false;
  // The source cpu runs a composition of core's (OpRecord::composed) in place of a kernel over aliases.
  bool composed = false;
  // A loop over lists (_foreach_*), whose tensors may lie on several devices.
  bool list_loop = false;
  // The kernel reads and writes elements and neither makes views of its arguments nor resizes them
  // (elementwise kernels, not out=): aliases may share the caller's storage, which saves one allocation a
  // tensor.
  bool elementwise = false;
  // Works in place, and its kernels never resize what they write, not even to the size it has.
  bool keeps_sizes = false;
};

// Whether these tensors lie on more than one device, or on another than `first`, which is set to the first
// one's where it is empty. PyTorch's own loops over lists (_foreach_*) then go tensor by tensor.
bool spanDevices(at::TensorList tensors, std::optional<c10::Device>& first) noexcept;

// The key under which an operator's composite kernel is found: no backend of PyTorch or ours has kernels for
// PrivateUse3.
inline c10::DispatchKeySet compositeKeys() { return c10::DispatchKeySet(c10::DispatchKey::PrivateUse3); }

class OperatorCall {
 public:
  // Takes the road that the operator's route names.
  explicit OperatorCall(OpId op, OperatorTraits traits = {}) noexcept : op_(op), traits_(traits) {}
  // Takes the road of `source`, cpu or boxed, whatever the route.
  OperatorCall(OpId op, OperatorTraits traits, Source source) noexcept
      : op_(op), traits_(traits), forced_(true), source_(source) {}
  ~OperatorCall() {
    if (slots_ != nullptr) slots_->release(mark_);
  }
  OperatorCall(const OperatorCall&) = delete;
  OperatorCall& operator=(const OperatorCall&) = delete;

  FLAGOS_HOT void see(const at::Tensor& tensor, Access access = Access::Read);
  void seeDevice(std::optional<c10::Device> device);  // of a factory's device argument
  // Settles the device, once everything was seen. False: the route has more to it than one of this class'
  // roads, and routed_kernel.cpp must take the call. Throws c10::Error if devices differ.
  FLAGOS_HOT bool settle();
  // Counts the call and, for the host, waits for the current stream and enters the region. After settle().
  FLAGOS_HOT void begin();

  // The tensor for the kernel: an alias of a flagos tensor, anything else unchanged.
  at::Tensor alias(const at::Tensor& tensor);

  // The same, valid until this call ends: from a slot of the thread where that is possible, else in `holder`.
  // Defined tensors of the device only.
  FLAGOS_HOT std::optional<at::Tensor>& lend(const at::Tensor& tensor, std::optional<at::Tensor>& holder);

  // Carries new sizes, a new storage and, when staged, the bytes of the written arguments back to the
  // caller's tensors.
  FLAGOS_HOT void finishWrites();
  // Counts a change of a tensor whose alias counted on a counter of its own, where the operator is one that
  // counts. For each written element of a list.
  void countVersion(const at::Tensor& tensor) const {
    if (traits_.elementwise && zero_copy_) tensor.unsafeGetTensorImpl()->bump_version();
  }

  // What the caller gets for a tensor that the kernel returned: the argument itself, a view of an argument,
  // or a new flagos tensor.
  FLAGOS_HOT at::Tensor result(at::Tensor output);

  // Says in an error of the device itself which operator met it: a sticky one may come from an earlier call.
  void explain(c10::Error& error) const;

  c10::DeviceIndex device() const noexcept { return device_; }
  const DeviceEntry& entry() const noexcept { return *entry_; }
  OpId op() const noexcept { return op_; }
  Source source() const noexcept { return source_; }
  // What the kernel is called with: the keys of its backend, and the device that aliases are on.
  c10::DispatchKeySet keys() const noexcept { return keys_; }
  c10::Device target() const noexcept { return target_; }

 private:
  struct Lent {
    const at::Tensor* original;  // the caller's; outlives the call
    at::Tensor alias;
  };
  struct LentStorage {
    c10::StorageImpl* original;
    c10::intrusive_ptr<c10::StorageImpl> borrowed;
    int64_t first_byte = 0;           // staged: where in the original the buffer begins
    const void* lent_data = nullptr;  // to notice that a kernel resized it
  };

  FLAGOS_HOT void takeDevice(c10::DeviceIndex device);
  // Whether slots serve, which know no change of what is written.
  bool keepsSizes() const noexcept { return traits_.elementwise || traits_.keeps_sizes; }
  bool isWritten(const at::Tensor& tensor) const noexcept;
  LentStorage& lendStorage(const at::Tensor& tensor);
  void stage();
  at::Tensor viewOnOriginal(const at::Tensor& output, const LentStorage& storage);
  at::Tensor viewOnSlot(const at::Tensor& output, const AliasSlot& slot);
  // A kernel may leave an out= argument conjugated or negated by its bit (linalg.lu_solve).
  static void carryValueBits(const at::Tensor& tensor, const at::Tensor& alias);
  void finishZeroCopy(const at::Tensor& tensor, const at::Tensor& alias, LentStorage& storage);
  void finishStaged(const at::Tensor& tensor, const at::Tensor& alias, LentStorage& storage);
  FLAGOS_HOT at::Tensor adopt(at::Tensor output);
  at::Tensor upload(const at::Tensor& output);
  bool deviceDiffers(const at::Tensor& tensor, Access access) const;
  [[noreturn]] void throwDeviceMismatch(const at::Tensor& tensor) const;

  OpId op_;
  OperatorTraits traits_;
  bool forced_ = false;
  bool direct_ = true;
  bool zero_copy_ = true;
  Source source_ = Source::Cpu;
  c10::DeviceIndex device_ = -1;
  c10::Device target_{c10::DeviceType::CPU};
  c10::DispatchKeySet keys_{c10::DispatchKey::CPU};
  const DeviceEntry* entry_ = nullptr;
  AliasSlots* slots_ = nullptr;  // null: none taken
  AliasSlots::Mark mark_;
  std::optional<HostRegion> region_;
  const at::Tensor* host_tensor_ =
      nullptr;  // a tensor of the host that must not be mixed with device tensors
  c10::SmallVector<Lent, 4> lent_;
  c10::SmallVector<LentStorage, 4> storages_;
  c10::SmallVector<std::pair<const at::Tensor*, Access>, 4> seen_;
  // Staged results: the host's storage (kept, so that its address stays its own) and its copy on the device.
  c10::SmallVector<std::pair<c10::Storage, c10::Storage>, 2> uploaded_;
};

// An alias for kernels of the companion that shares the tensor's storage; a tensor of another device unchanged.
// For kernels that make no views of their arguments.
at::Tensor aliasOnCompanion(const at::Tensor& tensor);

}  // namespace flagos::ops
