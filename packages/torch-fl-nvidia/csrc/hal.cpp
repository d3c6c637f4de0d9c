// The HAL of NVIDIA GPUs: CUDA's runtime library, opened at run time.
#include "traits.hpp"

FLAGOS_HAL_LIBRARY(flagos::hal_support::CudaShaped<flagos_nvidia::Traits>)
