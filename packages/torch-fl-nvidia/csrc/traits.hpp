// What is NVIDIA's own; everything else is hal_support/cuda_shaped.hpp.
#pragma once

#include <cstring>

#include "flagos/hal_support/cuda_shaped.hpp"

namespace flagos_nvidia {

using flagos::hal_support::CudaShapedApi;
using flagos::hal_support::SdkLibrary;
using flagos::hal_support::SdkSearch;

struct Traits {
  static constexpr const char* kVendor = "nvidia";
  static constexpr const char* kVersion = "0.1.0";
  static constexpr const char* kPrefix = "cuda";

  static SdkSearch search();
  static flagos_hal_status toStatus(int code) noexcept;
  static flagos_hal_status properties(const CudaShapedApi& api, int32_t device,
                                      flagos_hal_device_properties* out);
};

}  // namespace flagos_nvidia
