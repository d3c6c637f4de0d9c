// What core knows of one operator, read once from its schema.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include "csrc/ops/host_call.h"
#include "csrc/ops/router.h"

namespace flagos::ops {

enum class ArgumentKind : uint8_t { Other, Tensor, TensorList, OptionalTensorList, Generator, Device };

struct ArgumentRecord {
  ArgumentKind kind = ArgumentKind::Other;
  Access access = Access::Read;
};

struct OpRecord {
  OpId id = 0;
  c10::SmallVector<ArgumentRecord, 8> arguments;  // in the schema's order
  size_t returns = 0;
  HostCallTraits traits;
};

// The record of an operator; made at the first call for it and kept for the life of the process. Thread-safe.
const OpRecord& opRecord(const c10::OperatorHandle& op);

}  // namespace flagos::ops
