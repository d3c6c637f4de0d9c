// As precompiled.h, for the files that speak pybind11.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>
