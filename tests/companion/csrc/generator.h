// The generator of a stand-in device: seed and offset, 16 bytes of state as CUDA's; kernels draw from a
// Mersenne twister seeded with both.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "devices.h"
#include "torch_version.h"

namespace standin {

struct RandomState {
  std::atomic<uint64_t> seed{c10::default_rng_seed_val};
  std::atomic<uint64_t> offset{0};  // a multiple of 4
};

class StandinGenerator final : public c10::GeneratorImpl {
 public:
  explicit StandinGenerator(c10::DeviceIndex device, std::shared_ptr<RandomState> state = nullptr);
  ~StandinGenerator() override = default;

  void set_current_seed(uint64_t seed) override;  // also resets the offset
  void set_offset(uint64_t offset) override;      // a multiple of 4
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  // Share, rather than copy.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
#if STANDIN_TORCH_AT_LEAST(2, 14)
  void philox_state(uint64_t increment, at::Tensor& seed, at::Tensor& offset,
                    at::Tensor& intragraph_offset) override;
#endif
  static c10::DeviceType device_type() { return kType; }

  // One draw: 4 numbers of the offset. Returns a CPU generator that depends on seed and offset alone.
  at::Generator draw();

 private:
  StandinGenerator* clone_impl() const override;

  std::shared_ptr<RandomState> state_;  // never null
};

const at::Generator& defaultGenerator(c10::DeviceIndex device);  // −1: of the current device
at::Generator newGenerator(c10::DeviceIndex device);

// For a kernel on `device`: `given`, which must be of the stand-in and of this device, or the default one.
StandinGenerator& generatorFor(const std::optional<at::Generator>& given, c10::DeviceIndex device);

}  // namespace standin
