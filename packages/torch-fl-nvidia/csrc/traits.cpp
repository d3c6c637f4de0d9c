#include "traits.hpp"

#include <dlfcn.h>
#include <glob.h>

#include <cstdio>

namespace flagos_nvidia {

namespace {

// cudaDeviceAttr, the same numbers in CUDA 11 to 13 (driver_types.h).
enum Attribute : int {
  kMaxThreadsPerBlock = 1,
  kSharedMemoryPerBlock = 8,
  kWarpSize = 10,
  kClockRate = 13,
  kMultiprocessors = 16,
  kIntegrated = 18,
  kL2CacheSize = 38,
  kThreadsPerMultiprocessor = 39,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kSharedMemoryPerMultiprocessor = 81,
  kRegistersPerMultiprocessor = 82,
  kSharedMemoryPerBlockOptin = 97,
};

// The start of cudaDeviceProp, the same in CUDA 11 to 13 (driver_types.h).
struct PropertiesHead {
  char name[256];
  unsigned char uuid[16];
  char luid[8];
  unsigned luid_node_mask;
  size_t total_memory;
};
static_assert(offsetof(PropertiesHead, total_memory) == 288, "as CUDA has it");

// Files of this name are also shipped by vendors whose runtime has CUDA's names; theirs needs their own
// runtime, or lies beside it. Returns why the file is not NVIDIA's, or "".
std::string otherVendor(void* handle, const std::string& path) {
  for (const char* symbol :
       {"hggcGetDeviceCount", "xpu_device_count", "mcGetDeviceCount", "hipGetDeviceCount"}) {
    // Looks in the libraries that this one needs, too.
    if (::dlsym(handle, symbol) != nullptr) return std::string("another vendor's: it brings ") + symbol;
  }
  const std::string folder = path.substr(0, path.rfind('/'));
  for (const char* name : {"libhggc*", "libxpurt*", "libgalaxyhip*", "libmcruntime*"}) {
    glob_t found = {};
    const bool there = ::glob((folder + "/" + name).c_str(), 0, nullptr, &found) == 0;
    const std::string first = there ? found.gl_pathv[0] : "";
    ::globfree(&found);
    if (there) return "another vendor's: " + first + " lies beside it";
  }
  return "";
}

uint64_t dtypesOf(int major, int minor) {
  uint64_t bits = 0;
  for (int type = FLAGOS_HAL_DTYPE_UINT8; type <= FLAGOS_HAL_DTYPE_BOOL; ++type) bits |= uint64_t{1} << type;
  if (major >= 8) bits |= uint64_t{1} << FLAGOS_HAL_DTYPE_BFLOAT16;
  if (major > 8 || (major == 8 && minor >= 9)) {
    bits |= uint64_t{1} << FLAGOS_HAL_DTYPE_FLOAT8_E4M3FN | uint64_t{1} << FLAGOS_HAL_DTYPE_FLOAT8_E5M2;
  }
  return bits;
}

}  // namespace

SdkSearch Traits::search() {
  return {"CUDA runtime",
          {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"},
          // A copy that torch has loaded comes first: two of them in a process have two current devices.
          {SdkLibrary::kLoaded, SdkLibrary::kLoaderPath, "$CUDA_HOME/lib64", "$CUDA_PATH/lib64",
           "/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64"},
          "Install NVIDIA's driver and the CUDA runtime (pip install nvidia-cuda-runtime), or set CUDA_HOME",
          otherVendor};
}

flagos_hal_status Traits::toStatus(int code) noexcept {
  switch (code) {
    case 34:   // the stub of the driver, from the toolkit, was found in place of the driver
    case 36:   // a call that the driver does not know
    case 803:  // driver and runtime do not fit together
    case 804:  // forward compatibility on hardware that has none
      return FLAGOS_HAL_STATUS_UNAVAILABLE;
    default:
      return flagos::hal_support::cudaShapedStatus(code);
  }
}

flagos_hal_status Traits::properties(const CudaShapedApi& api, int32_t device,
                                     flagos_hal_device_properties* out) {
  alignas(16) unsigned char whole[8192] = {};  // larger than the structure of any version
  if (api.GetDeviceProperties != nullptr && api.GetDeviceProperties(whole, device) == 0) {
    PropertiesHead head;
    std::memcpy(&head, whole, sizeof(head));
    std::snprintf(out->name, sizeof(out->name), "%.255s", head.name);
    std::memcpy(out->uuid, head.uuid, sizeof(out->uuid));
    out->total_memory = static_cast<int64_t>(head.total_memory);
  }
  const auto attribute = [&](int which, auto* value) {
    int answer = 0;
    if (api.DeviceGetAttribute(&answer, which, device) == 0) {
      *value = answer;
    } else {
      api.GetLastError();
    }
  };
  attribute(kMaxThreadsPerBlock, &out->max_threads_per_block);
  attribute(kSharedMemoryPerBlock, &out->shared_memory_per_block);
  attribute(kSharedMemoryPerBlockOptin, &out->shared_memory_per_block_optin);
  attribute(kSharedMemoryPerMultiprocessor, &out->shared_memory_per_multiprocessor);
  attribute(kRegistersPerMultiprocessor, &out->registers_per_multiprocessor);
  attribute(kWarpSize, &out->warp_size);
  attribute(kClockRate, &out->clock_rate_khz);
  attribute(kMultiprocessors, &out->multiprocessor_count);
  attribute(kIntegrated, &out->is_integrated);
  attribute(kL2CacheSize, &out->l2_cache_size);
  attribute(kThreadsPerMultiprocessor, &out->max_threads_per_multiprocessor);
  attribute(kCapabilityMajor, &out->capability_major);
  attribute(kCapabilityMinor, &out->capability_minor);
  if (out->capability_major > 0 && out->capability_minor >= 0) {
    std::snprintf(out->arch, sizeof(out->arch), "sm_%d%d", out->capability_major, out->capability_minor);
    out->dtypes = dtypesOf(out->capability_major, out->capability_minor);
  }
  return FLAGOS_HAL_STATUS_OK;
}

}  // namespace flagos_nvidia
