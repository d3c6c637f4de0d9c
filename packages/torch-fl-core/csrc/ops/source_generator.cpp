#include "csrc/ops/source_generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/MT19937RNGEngine.h>
#include <ATen/core/PhiloxRNGEngine.h>

#include <mutex>

#include "csrc/runtime/generator.h"

namespace flagos::ops {

at::Generator hostGenerator(const std::optional<at::Generator>& given, c10::DeviceIndex device) {
  const auto [seed, offset] = generatorFor(given, device).reserve(kHostReservation);
  // All 624 words of the Mersenne twister come from Philox: seeding it with one 32-bit word would make calls
  // collide.
  at::mt19937_data_pod state{};
  at::Philox4_32 words(seed, /*subsequence=*/offset, /*offset=*/0);
  for (auto& word : state.state_) word = words();
  state.seed_ = seed;
  state.seeded_ = true;
  state.left_ = 1;  // the next draw generates a fresh block
  state.next_ = 0;
  at::mt19937 engine;
  engine.set_data(state);

  thread_local const at::Generator generator = at::detail::createCPUGenerator();
  auto* impl = at::check_generator<at::CPUGeneratorImpl>(generator);
  const std::lock_guard<std::mutex> lock(impl->mutex_);
  impl->set_engine(engine);
  impl->set_next_float_normal_sample(std::nullopt);
  impl->set_next_double_normal_sample(std::nullopt);
  return generator;
}

std::optional<at::Generator> sourceGenerator(const std::optional<at::Generator>& given,
                                             const OperatorCall& call) {
  if (call.source() != Source::Boxed) return hostGenerator(given, call.device());
  if (!given.has_value() || !given->defined()) return given;  // its default one is the flagos default one's
  if (given->device() == call.target()) return given;
  return generatorFor(given, call.device()).companion();
}

}  // namespace flagos::ops
