// Moving bytes between storages: host, this device, another device, another backend. Layout and dtype are
// copy.cpp's subject.
#pragma once

#include <ATen/core/Tensor.h>

namespace flagos::ops {

// Copies the elements of `source` to `destination`, which has the same dtype, sizes and strides, both
// non-overlapping and dense; at least one is on a flagos device, and they do not share memory. Ordered after
// what the current streams of the devices concerned hold. With `non_blocking` it is only queued, where the
// hardware can: to and from pinned memory, and between devices; otherwise the bytes are there on return.
void transfer(const at::Tensor& destination, const at::Tensor& source, bool non_blocking);

}  // namespace flagos::ops
