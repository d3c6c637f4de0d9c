#include "csrc/runtime/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/TensorBase.h>
#if FLAGOS_TORCH_AT_LEAST(2, 14)
#include <ATen/core/Tensor.h>
#endif
#include <c10/core/TensorImpl.h>

#include <array>
#include <atomic>
#include <cstring>

#include "csrc/runtime/companion.h"

namespace flagos {
namespace {

// The layout that DTensor's random state and checkpoints of CUDA programs assume: uint64 seed, int64 offset,
// native byte order.
constexpr int64_t kStateSize = 16;

struct DefaultGenerators {
  std::mutex mutex;  // guards the making of generators, and the seed that new ones get
  std::array<at::Generator, kMaxDevices> generators;
  std::array<std::atomic<bool>, kMaxDevices> ready{};  // generators[i] is there, and does not change any more
  std::optional<uint64_t> seed;
};

DefaultGenerators& defaults() {
  static auto* instance = new DefaultGenerators;
  return *instance;
}

void setSeed(FlagosGenerator& generator, uint64_t seed) {
  std::lock_guard<std::mutex> lock(generator.mutex_);
  generator.set_current_seed(seed);
}

at::Generator makeGenerator(const DeviceEntry& entry, bool is_default) {
  if (entry.companion == nullptr) return at::make_generator<FlagosGenerator>(entry.index);
  return at::make_generator<FlagosGenerator>(
      entry.index, is_default ? companionGenerator(entry) : newCompanionGenerator(entry));
}

void checkOffset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "flagos: a generator's offset was set to ", offset,
              "; it must be a multiple of 4, the numbers that one Philox step gives.");
}

}  // namespace

FlagosGenerator::FlagosGenerator(c10::DeviceIndex device)
    : FlagosGenerator(device, std::make_shared<PhiloxState>()) {}

FlagosGenerator::FlagosGenerator(c10::DeviceIndex device, std::shared_ptr<PhiloxState> state)
    : c10::GeneratorImpl(c10::Device(kDeviceType, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::move(state)) {}

FlagosGenerator::FlagosGenerator(c10::DeviceIndex device, at::Generator companion)
    : c10::GeneratorImpl(c10::Device(kDeviceType, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      companion_(std::move(companion)) {}

c10::DeviceType FlagosGenerator::device_type() { return kDeviceType; }

void FlagosGenerator::set_current_seed(uint64_t seed) {
  if (companion_.defined()) return onCompanion([&](auto& impl) { impl.set_current_seed(seed); });
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->seed = seed;
  state_->offset = 0;
}

void FlagosGenerator::set_offset(uint64_t offset) {
  checkOffset(offset);
  if (companion_.defined()) return onCompanion([&](auto& impl) { impl.set_offset(offset); });
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->offset = offset;
}

uint64_t FlagosGenerator::get_offset() const {
  if (companion_.defined()) return onCompanion([](auto& impl) { return impl.get_offset(); });
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->offset;
}

uint64_t FlagosGenerator::current_seed() const {
  if (companion_.defined()) return onCompanion([](auto& impl) { return impl.current_seed(); });
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->seed;
}

uint64_t FlagosGenerator::seed() {
  const uint64_t seed =
      c10::detail::getNonDeterministicRandom(true);  // 53 bits, so that Python's float holds it
  set_current_seed(seed);
  return seed;
}

void FlagosGenerator::set_state(const c10::TensorImpl& state) {
  if (companion_.defined()) return onCompanion([&](auto& impl) { impl.set_state(state); });
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == kStateSize, "flagos: a generator's state was set from ", state.numel(),
              " bytes; it has ", kStateSize, " (seed and offset). ",
              state.numel() > 1000 ? "This looks like the state of a CPU generator." : "");
  uint64_t seed = 0;
  uint64_t offset = 0;
  const auto* bytes = static_cast<const char*>(state.data());
  std::memcpy(&seed, bytes, sizeof(seed));
  std::memcpy(&offset, bytes + sizeof(seed), sizeof(offset));
  checkOffset(offset);
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->seed = seed;
  state_->offset = offset;
}

c10::intrusive_ptr<c10::TensorImpl> FlagosGenerator::get_state() const {
  if (companion_.defined()) return onCompanion([](auto& impl) { return impl.get_state(); });
  uint64_t seed = 0;
  uint64_t offset = 0;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    seed = state_->seed;
    offset = state_->offset;
  }
  const at::TensorBase state = at::detail::empty_cpu({kStateSize}, at::TensorOptions().dtype(at::kByte));
  auto* bytes = static_cast<char*>(state.mutable_data_ptr());
  std::memcpy(bytes, &seed, sizeof(seed));
  std::memcpy(bytes + sizeof(seed), &offset, sizeof(offset));
  return state.getIntrusivePtr();
}

void FlagosGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {
  const auto* generator = dynamic_cast<const FlagosGenerator*>(other.get());
  TORCH_CHECK(
      generator != nullptr,
      "flagos: a flagos generator can share the state of another flagos generator only, not of one of ",
      other ? other->device().str() : std::string("no device"), ".");
  if (companion_.defined()) {
    TORCH_CHECK(generator->companion_.defined(), "flagos: the generator of ", device_,
                " cannot share the state of one of ", generator->device(), ", which is of another kind.");
    const auto shared = generator->companion_.getIntrusivePtr();
    return onCompanion([&](auto& impl) { impl.graphsafe_set_state(shared); });
  }
  TORCH_CHECK(generator->state_ != nullptr, "flagos: the generator of ", device_,
              " cannot share the state of one of ", generator->device(), ", which is of another kind.");
  state_ = generator->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> FlagosGenerator::graphsafe_get_state() const {
  if (companion_.defined()) {
    at::Generator shared(onCompanion([](auto& impl) { return impl.graphsafe_get_state(); }));
    return c10::make_intrusive<FlagosGenerator>(device_.index(), std::move(shared));
  }
  return c10::make_intrusive<FlagosGenerator>(device_.index(), state_);
}

#if FLAGOS_TORCH_AT_LEAST(2, 14)
void FlagosGenerator::philox_state(uint64_t increment, at::Tensor& seed, at::Tensor& offset,
                                   at::Tensor& intragraph_offset) {
  // The caller holds mutex_, as for every virtual of a generator. Outside of a capture nothing is added on
  // the device.
  if (companion_.defined())
    return onCompanion([&](auto& impl) { impl.philox_state(increment, seed, offset, intragraph_offset); });
  const auto [drawn_seed, first] = advance(increment);
  seed.fill_(static_cast<int64_t>(drawn_seed));
  offset.fill_(static_cast<int64_t>(first));
  intragraph_offset.fill_(0);
}
#endif

std::pair<uint64_t, uint64_t> FlagosGenerator::advance(uint64_t count) {
  if (companion_.defined()) {
    return onCompanion([&](auto& impl) -> std::pair<uint64_t, uint64_t> {
      const uint64_t first = impl.get_offset();
      impl.set_offset(first + (count + 3) / 4 * 4);
      return {impl.current_seed(), first};
    });
  }
  std::lock_guard<std::mutex> lock(state_->mutex);
  const uint64_t first = state_->offset;
  state_->offset += (count + 3) / 4 * 4;
  return {state_->seed, first};
}

std::pair<uint64_t, uint64_t> FlagosGenerator::reserve(uint64_t count) {
  // mutex_ as well: code that knows c10::GeneratorImpl only reads and writes the offset under it.
  std::lock_guard<std::mutex> lock(mutex_);
  return advance(count);
}

FlagosGenerator* FlagosGenerator::clone_impl() const {
  if (companion_.defined()) {
    at::Generator copy(onCompanion([](auto& impl) { return impl.clone(); }));
    return new FlagosGenerator(device_.index(), std::move(copy));
  }
  auto state = std::make_shared<PhiloxState>();
  std::lock_guard<std::mutex> lock(state_->mutex);
  state->seed = state_->seed;
  state->offset = state_->offset;
  return new FlagosGenerator(device_.index(), std::move(state));
}

const at::Generator& defaultGenerator(c10::DeviceIndex device) {
  const DeviceEntry& entry = deviceEntry(resolveIndex(device));
  const auto index = static_cast<size_t>(entry.index);
  DefaultGenerators& all = defaults();
  if (all.ready[index].load(std::memory_order_acquire)) return all.generators[index];
  std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.ready[index].load(std::memory_order_relaxed)) {
    at::Generator generator = makeGenerator(entry, /*is_default=*/true);
    // Without a seed of our own the CPU generator's: that of a torch.manual_seed from before the device was
    // claimed, else random. A companion's generator may have been seeded, and drawn from, already.
    if (all.seed.has_value()) {
      generator.set_current_seed(*all.seed);
    } else if (entry.companion == nullptr) {
      generator.set_current_seed(at::detail::getDefaultCPUGenerator().current_seed());
    }
    all.generators[index] = std::move(generator);
    all.ready[index].store(true, std::memory_order_release);
  }
  return all.generators[index];
}

at::Generator newGenerator(c10::DeviceIndex device) {
  return makeGenerator(deviceEntry(resolveIndex(device)), /*is_default=*/false);
}

void seedAll(uint64_t seed) {
  DefaultGenerators& all = defaults();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.seed = seed;
  for (size_t i = 0; i < all.generators.size(); ++i) {
    if (all.ready[i].load(std::memory_order_relaxed))
      setSeed(*all.generators[i].get<FlagosGenerator>(), seed);
  }
}

void seedCompanions() {
  const int devices = detail::device_table_size.load(std::memory_order_acquire);
  for (c10::DeviceIndex index = 0; index < devices; ++index) {
    if (detail::device_table[index].companion != nullptr) defaultGenerator(index);
  }
}

FlagosGenerator& generatorFor(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  if (!generator.has_value() || !generator->defined())
    return *defaultGenerator(device).get<FlagosGenerator>();
  const c10::DeviceIndex index = resolveIndex(device);
  TORCH_CHECK(generator->device().type() == kDeviceType && generator->device().index() == index,
              "flagos: a generator of ", generator->device(),
              " was given for work on flagos:", static_cast<int>(index),
              ". Make it with torch.Generator(device='flagos:", static_cast<int>(index), "').");
  return *generator->get<FlagosGenerator>();
}

}  // namespace flagos
