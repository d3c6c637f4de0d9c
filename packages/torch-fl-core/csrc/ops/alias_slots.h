// Aliases that a thread keeps and aims at one tensor after the other. Making an alias anew costs an allocation
// or two, two constructors and four atomic counts per argument; aiming one that is there is a copy of the sizes.
//
// Slots are a stack: a call takes from the top and gives back when it ends, calls inside it take what lies
// above. A slot whose alias a kernel has kept is not used again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "csrc/api.h"
#include "csrc/ops/alias.h"

namespace flagos::ops {

struct AliasSlot {
  std::optional<at::Tensor> alias;  // always there; optional, so that it serves optional arguments as well
  const at::Tensor* original = nullptr;      // the caller's; null: free
  c10::intrusive_ptr<AliasStorage> storage;  // its own, or null where it shares the original's
};

class AliasSlots {
 public:
  // The calling thread's.
  FLAGOS_HOT static AliasSlots& ofThread();

  // An alias that shares the original's storage (without counting: the caller holds it), for kernels that make
  // no views.
  FLAGOS_HOT AliasSlot& shareStorage(const at::Tensor& original, c10::DispatchKeySet keys,
                                     c10::Device device);
  struct Mark {
    size_t sharing = 0;
    size_t borrowing = 0;
  };
  // An alias over a storage of its own that borrows the memory. With `since`, one that was taken since then for
  // the same memory shares its storage, so that kernels see the overlap.
  FLAGOS_HOT AliasSlot& borrowMemory(const at::Tensor& original, c10::DispatchKeySet keys, c10::Device device,
                                     c10::Allocator* allocator, const Mark* since = nullptr);

  Mark mark() const noexcept { return {sharing_.top, borrowing_.top}; }
  FLAGOS_HOT void release(Mark mark) noexcept;

  // Of the slots taken since `mark`: the one whose storage this is; null if none.
  const AliasSlot* borrowedSince(Mark mark, const c10::StorageImpl* storage) const noexcept;

 private:
  struct Stack {
    std::vector<std::unique_ptr<AliasSlot>> slots;  // their addresses stay
    size_t top = 0;
  };
  bool shareWithin(Mark since, AliasSlot& slot, const c10::StorageImpl* memory);

  Stack sharing_, borrowing_;
};

}  // namespace flagos::ops
