#include "generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <array>
#include <cstring>
#include <mutex>

#include "records.h"

namespace standin {
namespace {

constexpr int64_t kStateSize = 16;  // uint64 seed, int64 offset
constexpr uint64_t kDraw = 4;

void checkOffset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4; standin was given ", offset, ".");
}

}  // namespace

StandinGenerator::StandinGenerator(c10::DeviceIndex device, std::shared_ptr<RandomState> state)
    : c10::GeneratorImpl(deviceOf(device), c10::DispatchKeySet(c10::DispatchKey::HPU)),
      state_(state != nullptr ? std::move(state) : std::make_shared<RandomState>()) {}

void StandinGenerator::set_current_seed(uint64_t seed) {
  state_->seed = seed;
  state_->offset = 0;
}

void StandinGenerator::set_offset(uint64_t offset) {
  checkOffset(offset);
  state_->offset = offset;
}

uint64_t StandinGenerator::get_offset() const { return state_->offset; }
uint64_t StandinGenerator::current_seed() const { return state_->seed; }

uint64_t StandinGenerator::seed() {
  const uint64_t seed = c10::detail::getNonDeterministicRandom(true);
  set_current_seed(seed);
  return seed;
}

void StandinGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == kStateSize, "RNG state is wrong size: standin was given ", state.numel(),
              " bytes, a state has ", kStateSize, ".");
  uint64_t seed = 0;
  uint64_t offset = 0;
  const auto* bytes = static_cast<const char*>(state.data());
  std::memcpy(&seed, bytes, sizeof(seed));
  std::memcpy(&offset, bytes + sizeof(seed), sizeof(offset));
  checkOffset(offset);
  state_->seed = seed;
  state_->offset = offset;
}

c10::intrusive_ptr<c10::TensorImpl> StandinGenerator::get_state() const {
  const uint64_t seed = state_->seed;
  const uint64_t offset = state_->offset;
  const at::TensorBase state = at::detail::empty_cpu({kStateSize}, at::TensorOptions().dtype(at::kByte));
  auto* bytes = static_cast<char*>(state.mutable_data_ptr());
  std::memcpy(bytes, &seed, sizeof(seed));
  std::memcpy(bytes + sizeof(seed), &offset, sizeof(offset));
  return state.getIntrusivePtr();
}

void StandinGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {
  const auto* generator = dynamic_cast<const StandinGenerator*>(other.get());
  TORCH_CHECK(generator != nullptr, "standin: a state can be shared with another generator of hpu only.");
  state_ = generator->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> StandinGenerator::graphsafe_get_state() const {
  return c10::make_intrusive<StandinGenerator>(device_.index(), state_);
}

#if STANDIN_TORCH_AT_LEAST(2, 14)
// The caller holds mutex_.
void StandinGenerator::philox_state(uint64_t increment, at::Tensor& seed, at::Tensor& offset,
                                    at::Tensor& intragraph_offset) {
  seed.fill_(static_cast<int64_t>(state_->seed.load()));
  offset.fill_(static_cast<int64_t>(state_->offset.fetch_add((increment + 3) / 4 * 4)));
  intragraph_offset.fill_(0);
}
#endif

at::Generator StandinGenerator::draw() {
  count("draw");
  const std::lock_guard<std::mutex> lock(mutex_);
  at::Philox4_32 words(state_->seed, /*subsequence=*/state_->offset, /*offset=*/0);
  state_->offset += kDraw;
  const uint64_t low = words();
  return at::make_generator<at::CPUGeneratorImpl>(low | static_cast<uint64_t>(words()) << 32);
}

StandinGenerator* StandinGenerator::clone_impl() const {
  auto state = std::make_shared<RandomState>();
  state->seed = state_->seed.load();
  state->offset = state_->offset.load();
  return new StandinGenerator(device_.index(), std::move(state));
}

const at::Generator& defaultGenerator(c10::DeviceIndex device) {
  static auto* const generators = [] {
    auto* all = new std::array<at::Generator, kMaxDevices>;
    for (c10::DeviceIndex i = 0; i < deviceCount(); ++i) (*all)[i] = at::make_generator<StandinGenerator>(i);
    return all;
  }();
  return (*generators)[static_cast<size_t>(resolveIndex(device, "the default generator"))];
}

at::Generator newGenerator(c10::DeviceIndex device) {
  return at::make_generator<StandinGenerator>(resolveIndex(device, "a new generator"));
}

StandinGenerator& generatorFor(const std::optional<at::Generator>& given, c10::DeviceIndex device) {
  auto* generator = at::get_generator_or_default<StandinGenerator>(given, defaultGenerator(device));
  TORCH_CHECK(generator->device().index() == device, "standin: a generator of ", generator->device(),
              " was given for work on hpu:", static_cast<int>(device), ".");
  return *generator;
}

}  // namespace standin
