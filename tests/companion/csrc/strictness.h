// What a kernel of the stand-in demands of its arguments. A CUDA kernel would read foreign memory, or work on
// a tensor that autograd still watches; here it is an error.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "op_table.h"

namespace standin {

// Whose label a storage may carry under a tensor of hpu.
enum class StorageLabels : int {
  Any = 0,
  PrivateUse1 = 1,  // hpu, or that of the device that calls the stand-in a companion
  OwnOnly = 2,
};

struct Rules {
  StorageLabels labels = StorageLabels::Any;
  // Where given: the only operators that may see a storage with another label than hpu.
  std::vector<std::string> foreign_label_ops;
  bool restrict_ops = false;
  // The bytes of every argument lie in a live block of the stand-in's allocator, on the tensor's device.
  bool own_memory = true;
  // Arguments carry no autograd keys, save those whose versions the kernel counts: what core lends. Not true
  // of tensors that a program itself makes on hpu.
  bool bare_tensors = false;
};

Rules rules();
void setRules(Rules rules);

// Refuses what no kernel may be given. Does not compare tensors with each other.
void checkTensor(const OpInfo& op, const Argument& argument, const at::Tensor& tensor);

}  // namespace standin
