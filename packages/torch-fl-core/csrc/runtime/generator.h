// The random generator of a flagos device: Philox (seed, offset), 16 bytes of state. On a device with a
// companion its state is that of a generator of the companion's, which it holds.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "csrc/runtime/devices.h"
#include "csrc/torch_version.h"

namespace flagos {

// What a generator draws from. Shared by generators made with graphsafe_get_state, hence with a lock of its
// own: their mutex_ differ.
struct PhiloxState {
  mutable std::mutex mutex;  // guards the rest
  uint64_t seed = c10::default_rng_seed_val;
  uint64_t offset = 0;  // of the next number, a multiple of 4
};

class FLAGOS_API FlagosGenerator final : public c10::GeneratorImpl {
 public:
  explicit FlagosGenerator(c10::DeviceIndex device);
  FlagosGenerator(c10::DeviceIndex device, std::shared_ptr<PhiloxState> state);
  FlagosGenerator(c10::DeviceIndex device, at::Generator companion);
  ~FlagosGenerator() override = default;

  void set_current_seed(uint64_t seed) override;  // also resets the offset
  void set_offset(uint64_t offset) override;      // a multiple of 4
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  // Share, rather than copy: the two generators then draw from one stream of numbers.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
#if FLAGOS_TORCH_AT_LEAST(2, 14)
  void philox_state(uint64_t increment, at::Tensor& seed, at::Tensor& offset,
                    at::Tensor& intragraph_offset) override;
#endif
  static c10::DeviceType device_type();

  // Reserves `count` numbers (rounded up to a multiple of 4) and returns (seed, first offset). Locks the
  // mutex itself.
  std::pair<uint64_t, uint64_t> reserve(uint64_t count);

  // What kernels of the companion draw from; undefined on a device without one.
  const at::Generator& companion() const noexcept { return companion_; }

 private:
  FlagosGenerator* clone_impl() const override;
  // Both mutex_ and this generator's state, in that order.
  std::pair<uint64_t, uint64_t> advance(uint64_t count);

  // Runs `function` on the companion's generator under that one's mutex.
  template <typename Function>
  auto onCompanion(Function function) const {
    const std::lock_guard<std::mutex> lock(companion_.mutex());
    return function(*companion_.unsafeGetGeneratorImpl());
  }

  std::shared_ptr<PhiloxState> state_;  // null if companion_ is there; changed under mutex_
  mutable at::Generator companion_;     // undefined on a device without a companion
};

// The device's own generator; −1: of the current device. Made when first asked for, with the seed of the last
// torch.manual_seed, also one from before the device was there.
FLAGOS_API const at::Generator& defaultGenerator(c10::DeviceIndex device);
FLAGOS_API at::Generator newGenerator(c10::DeviceIndex device);

// Seeds the default generators of all devices, also those that do not exist yet. Activates nothing.
FLAGOS_API void seedAll(uint64_t seed);

// Gives the companions' default generators the seed of a torch.manual_seed from before the devices were open:
// their kernels draw from them directly.
void seedCompanions();

// `generator` if given (checked: of flagos, of this device), else the device's default one.
FLAGOS_API FlagosGenerator& generatorFor(const std::optional<at::Generator>& generator,
                                         c10::DeviceIndex device);

}  // namespace flagos
