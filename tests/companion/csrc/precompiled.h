// The headers that nearly every file of the stand-in reads; parsed once per build.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
