// What the stand-in knows of each operator that it serves: the schema, how often it ran, whether it shall
// fail.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <string>
#include <vector>

namespace standin {

enum class ArgumentKind : uint8_t { Other, Tensor, TensorList, OptionalTensorList, Generator, Device };

struct Argument {
  std::string name;
  ArgumentKind kind = ArgumentKind::Other;
  bool written = false;
};

struct OpInfo {
  std::string name;  // "aten::add.Tensor"
  std::vector<Argument> arguments;
  size_t returns = 0;
  bool takes_device = false;
  // Tensors of the host of any shape may stand beside those of the device: indices, lengths.
  bool host_tensors_allowed = false;
  // The kernel counts the versions of what it writes itself (_foreach_*_).
  bool counts_versions = false;
  mutable std::atomic<int64_t> calls{0};
  mutable std::atomic<int64_t> fails{0};  // so many of the next calls throw in the middle
};

// The entry of an operator, made from its schema when first asked for; it stays for the life of the process.
OpInfo& opInfo(const c10::OperatorHandle& op);
OpInfo& opInfo(const char* name);  // "aten::add.Tensor"; an operator that torch has

// Null if the stand-in has no kernel under this name.
OpInfo* findOp(const std::string& name);
std::vector<const OpInfo*> allOps();

}  // namespace standin
