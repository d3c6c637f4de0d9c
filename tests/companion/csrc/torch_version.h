// The torch minor that the stand-in is compiled for, as one condition; the same words as core's own header.
#pragma once

#include <torch/version.h>

#define STANDIN_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))
