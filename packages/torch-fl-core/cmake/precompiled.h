// The headers that nearly every file of the runtime and the operators reads; parsed once per build.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
