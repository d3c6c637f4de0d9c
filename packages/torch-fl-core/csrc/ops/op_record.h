// What core knows of one operator, read once from its schema.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <string>

#include "csrc/ops/operator_call.h"
#include "csrc/ops/sources.h"

namespace flagos::ops {

enum class ArgumentKind : uint8_t { Other, Tensor, TensorList, OptionalTensorList, Generator, Device };

struct ArgumentRecord {
  ArgumentKind kind = ArgumentKind::Other;
  Access access = Access::Read;
};

struct OpRecord {
  explicit OpRecord(const c10::OperatorHandle& handle) : op(handle) {}
  c10::OperatorHandle op;
  OpId id = 0;
  c10::SmallVector<ArgumentRecord, 8> arguments;  // in the schema's order
  size_t returns = 0;
  bool in_place = false;
  OperatorTraits traits;
  // What the source cpu runs in place of PyTorch's CPU kernel, on the caller's own tensors; null: nothing.
  const c10::KernelFunction* composed = nullptr;
  bool compared = true;  // two runs give the same result: no random numbers, no memory left as it was
  bool whole = false;    // a composite that is routed as a whole
};

// The record of an operator; made at the first call for it and kept for the life of the process. Thread-safe.
const OpRecord& opRecord(const c10::OperatorHandle& op);

// The record of an id; null if nobody has asked for one yet.
FLAGOS_API const OpRecord* recordOf(OpId id) noexcept;

// Has the source cpu run `kernel` for this operator (which must be known to the dispatcher). For static
// initialisers, before the first record is made.
void registerComposed(const std::string& name, c10::KernelFunction kernel);
bool isComposed(const std::string& name) noexcept;
bool isRoutedWhole(const std::string& name) noexcept;

// Whether a kernel serves the operator under these keys (of one backend), be it a composite one.
bool hasKernel(const OpRecord& record, c10::DispatchKeySet keys);
bool hasHostKernel(const OpRecord& record);

}  // namespace flagos::ops
