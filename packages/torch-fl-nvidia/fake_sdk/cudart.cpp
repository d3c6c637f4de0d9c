// libcudart as the tests need it: tests/fake_sdk/cuda_shaped.hpp under CUDA's names and numbers.
#define FAKE(name) cuda##name
#include "tests/fake_sdk/cuda_shaped.hpp"

FAKE_EXPORT const char* cudaGetErrorName(int code) {
  switch (code) {
    case fake::kInvalidValue:
      return "cudaErrorInvalidValue";
    case fake::kMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case fake::kInvalidDevice:
      return "cudaErrorInvalidDevice";
    case fake::kIllegalAddress:
      return "cudaErrorIllegalAddress";
    default:
      return "cudaErrorUnknown";
  }
}

FAKE_EXPORT int cudaGetDeviceProperties(void* properties, int device) {
  return fake::call("GetDeviceProperties", [&](fake::State& all, const flagos_hal_api& hal) {
    if (!fake::validDevice(all, device)) return fake::kInvalidDevice;
    // name at 0, uuid at 256, total memory at 288, as in CUDA 11 to 13.
    auto* bytes = static_cast<char*>(properties);
    std::snprintf(bytes, 256, "NVIDIA Fake %d", device);
    std::memset(bytes + 256, 0x40 + device, 16);
    uint64_t free = 0;
    uint64_t total = 0;
    const int code = fake::codeOf(hal.device->memory_info(device, &free, &total));
    std::memcpy(bytes + 288, &total, sizeof(total));
    return code;
  });
}

FAKE_EXPORT int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  return fake::call("DeviceGetAttribute", [&](fake::State& all, const flagos_hal_api&) {
    if (!fake::validDevice(all, device)) return fake::kInvalidDevice;
    static const std::map<int, int> kValues = {
        {1, 1024},  {8, 49152}, {10, 32}, {13, 1980000}, {16, 132},   {18, 0},     {38, 1 << 20},
        {39, 2048}, {75, 9},    {76, 0},  {81, 233472},  {82, 65536}, {97, 232448}};
    const auto it = kValues.find(attribute);
    if (it == kValues.end()) return fake::kInvalidValue;
    *value = it->second;
    return fake::kSuccess;
  });
}
