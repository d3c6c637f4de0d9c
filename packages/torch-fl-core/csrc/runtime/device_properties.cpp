#include "csrc/runtime/device_properties.h"

#include <utility>

namespace flagos {
namespace {

constexpr std::pair<int, c10::ScalarType> kDtypes[] = {
    {FLAGOS_HAL_DTYPE_UINT8, c10::ScalarType::Byte},
    {FLAGOS_HAL_DTYPE_INT8, c10::ScalarType::Char},
    {FLAGOS_HAL_DTYPE_INT16, c10::ScalarType::Short},
    {FLAGOS_HAL_DTYPE_INT32, c10::ScalarType::Int},
    {FLAGOS_HAL_DTYPE_INT64, c10::ScalarType::Long},
    {FLAGOS_HAL_DTYPE_FLOAT16, c10::ScalarType::Half},
    {FLAGOS_HAL_DTYPE_FLOAT32, c10::ScalarType::Float},
    {FLAGOS_HAL_DTYPE_FLOAT64, c10::ScalarType::Double},
    {FLAGOS_HAL_DTYPE_COMPLEX32, c10::ScalarType::ComplexHalf},
    {FLAGOS_HAL_DTYPE_COMPLEX64, c10::ScalarType::ComplexFloat},
    {FLAGOS_HAL_DTYPE_COMPLEX128, c10::ScalarType::ComplexDouble},
    {FLAGOS_HAL_DTYPE_BOOL, c10::ScalarType::Bool},
    {FLAGOS_HAL_DTYPE_BFLOAT16, c10::ScalarType::BFloat16},
    {FLAGOS_HAL_DTYPE_FLOAT8_E4M3FN, c10::ScalarType::Float8_e4m3fn},
    {FLAGOS_HAL_DTYPE_FLOAT8_E5M2, c10::ScalarType::Float8_e5m2},
    {FLAGOS_HAL_DTYPE_UINT16, c10::ScalarType::UInt16},
    {FLAGOS_HAL_DTYPE_UINT32, c10::ScalarType::UInt32},
    {FLAGOS_HAL_DTYPE_UINT64, c10::ScalarType::UInt64},
    {FLAGOS_HAL_DTYPE_FLOAT8_E4M3FNUZ, c10::ScalarType::Float8_e4m3fnuz},
    {FLAGOS_HAL_DTYPE_FLOAT8_E5M2FNUZ, c10::ScalarType::Float8_e5m2fnuz},
    {FLAGOS_HAL_DTYPE_FLOAT8_E8M0FNU, c10::ScalarType::Float8_e8m0fnu},
    {FLAGOS_HAL_DTYPE_FLOAT4_E2M1FN, c10::ScalarType::Float4_e2m1fn_x2},
};

}  // namespace

flagos_hal_device_properties deviceProperties(c10::DeviceIndex device) {
  const DeviceEntry& entry = deviceEntry(resolveIndex(device));
  flagos_hal_device_properties properties{};
  properties.struct_size = sizeof(properties);
  FLAGOS_CHECK(entry, entry.hal->device.properties(entry.local, &properties), "read the properties");
  // A library that filled the buffers to the brim forgot the end of the text.
  properties.name[sizeof(properties.name) - 1] = '\0';
  properties.arch[sizeof(properties.arch) - 1] = '\0';
  properties.pci_bus_id[sizeof(properties.pci_bus_id) - 1] = '\0';
  return properties;
}

std::optional<std::vector<c10::ScalarType>> deviceDtypes(const flagos_hal_device_properties& properties) {
  if (properties.dtypes == 0) return std::nullopt;
  std::vector<c10::ScalarType> types;
  for (const auto& [bit, type] : kDtypes) {
    if ((properties.dtypes >> bit) & 1u) types.push_back(type);
  }
  return types;
}

c10::DeviceCapability deviceCapability(c10::DeviceIndex device) {
  c10::DeviceCapability capability;
  const auto types = deviceDtypes(deviceProperties(device));
  if (!types) return capability;
  capability.capability_data.capability_bits = 0;
  // Bit i of PyTorch's set is scalar type i.
  for (const c10::ScalarType type : *types)
    capability.capability_data.capability_bits |= 1ull << static_cast<int>(type);
  return capability;
}

}  // namespace flagos
