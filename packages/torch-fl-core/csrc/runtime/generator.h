// The random generator of a flagos device: Philox (seed, offset), 16 bytes of state.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "csrc/runtime/devices.h"

namespace flagos {

class FlagosGenerator final : public c10::GeneratorImpl {
 public:
  explicit FlagosGenerator(c10::DeviceIndex device);
  ~FlagosGenerator() override = default;

  void set_current_seed(uint64_t seed) override;  // also resets the offset
  void set_offset(uint64_t offset) override;      // a multiple of 4
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  static c10::DeviceType device_type();

  // Reserves `count` numbers (rounded up to a multiple of 4) and returns (seed, first offset). Locks the mutex itself.
  std::pair<uint64_t, uint64_t> reserve(uint64_t count);

 private:
  FlagosGenerator* clone_impl() const override;
  uint64_t seed_;
  uint64_t offset_ = 0;
};

// The device's own generator; −1: of the current device. Made when first asked for, with the pending seed if one was set.
const at::Generator& defaultGenerator(c10::DeviceIndex device);
at::Generator newGenerator(c10::DeviceIndex device);

// Seeds the default generators of all devices, also those that do not exist yet. Activates nothing.
void seedAll(uint64_t seed);

// `generator` if given (checked: of flagos, of this device), else the device's default one.
FlagosGenerator& generatorFor(const std::optional<at::Generator>& generator, c10::DeviceIndex device);

}  // namespace flagos
