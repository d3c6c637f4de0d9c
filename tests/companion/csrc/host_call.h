// One kernel of the stand-in: the CPU's own kernel over aliases of the arguments. The order of use: see()
// every tensor argument, begin(), alias() each, run the CPU kernel, finishWrites(), result() on what it
// returned.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <optional>
#include <utility>
#include <vector>

#include "devices.h"
#include "op_table.h"
#include "records.h"

namespace standin {

class HostCall {
 public:
  explicit HostCall(const OpInfo& op) : op_(op) {}
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;

  void see(const at::Tensor& tensor, const Argument& argument);
  void seeDevice(c10::Device device);
  // Makes the device current, counts the call and logs it on the device's current stream.
  void begin();

  at::Tensor alias(const at::Tensor& tensor);

  // Carries new sizes and grown storages to the caller's tensors; then throws, if this call shall fail.
  void finishWrites();

  // What the caller gets for a tensor that the CPU kernel returned: the argument itself, a view of an
  // argument, or new memory of the device.
  at::Tensor result(const at::Tensor& output);

  c10::DeviceIndex device() const noexcept { return *device_; }

 private:
  struct Lent {
    at::Tensor original;
    at::Tensor alias;
  };
  struct LentStorage {
    c10::StorageImpl* original;  // lives as long as the call: its tensors are held in lent_
    c10::intrusive_ptr<c10::StorageImpl> borrowed;
    const void* address;  // to notice that a kernel resized it
  };

  LentStorage& lend(const at::Tensor& tensor);
  void finishWrite(const at::Tensor& original, const at::Tensor& alias);

  const OpInfo& op_;
  std::optional<c10::DeviceIndex> device_;
  std::optional<DeviceScope> device_scope_;
  std::optional<KernelScope> kernel_scope_;
  std::vector<at::Tensor> written_;
  std::vector<Lent> lent_;
  std::vector<LentStorage> storages_;
  std::vector<std::pair<c10::Storage, c10::Storage>> uploaded_;  // the CPU's storage and its copy
};

}  // namespace standin
