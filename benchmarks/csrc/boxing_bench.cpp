// What boxing adds to a call: the same operators on tensors of a device without hardware, and on flagos tensors
// over it as their companion. Its kernels do next to nothing, so that the difference of the two is core's.
// Prints one JSON object per line: nanoseconds of processor time per call, medians of 31 repetitions.
//
//   boxing_bench <HAL library> [case]
#include <ATen/ATen.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "csrc/ops/registration.h"
#include "csrc/runtime/devices.h"

namespace {

constexpr c10::DeviceType kNull = c10::DeviceType::HPU;
constexpr int kRepeats = 31;
constexpr int kDevices = 2;

struct NullGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNull; }
  c10::Device exchangeDevice(c10::Device) const override { return c10::Device(kNull, 0); }
  c10::Device getDevice() const override { return c10::Device(kNull, 0); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT,
                       c10::Device(kNull, std::max<c10::DeviceIndex>(device.index(), 0)));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};

void deleteMemory(void* memory) { std::free(memory); }

struct NullAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = std::malloc(bytes);
    return {memory, memory, &deleteMemory, c10::Device(kNull, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &deleteMemory; }
  void copy_data(void*, const void*, size_t) const override {}
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
};

double nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// What a real kernel's launch does to the caches: a driver runs through much code and data of its own, so that
// what comes next is fetched anew. While it is on, each kernel walks 64 KiB of code and 192 KiB of data;
// the time of the walk itself is not counted.
constexpr int kSteps = 1024;
const char* only = nullptr;
bool walk = false;
double walked = 0;  // ns

template <int N>
__attribute__((noinline, aligned(64))) int step(int value) {
  return value * (2 * N + 1) + N;
}

template <int... N>
constexpr std::array<int (*)(int), kSteps> steps(std::integer_sequence<int, N...>) {
  return {&step<N>...};
}

void launch() {
  if (!walk) return;
  const double begin = nanoseconds();
  static constexpr auto all = steps(std::make_integer_sequence<int, kSteps>());
  static std::vector<int> data(192 << 8);
  static volatile int sink = 0;
  int value = sink;
  for (auto* const function : all) value = function(value);
  for (size_t i = 0; i < data.size(); i += 16) value += data[i]++;
  sink = value;
  walked += nanoseconds() - begin;
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat>) {
  return at::detail::empty_generic(size, c10::GetAllocator(kNull), c10::DispatchKeySet(c10::DispatchKey::HPU),
                                   c10::dtype_or_default(dtype), std::nullopt);
}

at::Tensor like(const at::Tensor& self) {
  launch();
  return empty(self.sizes(), self.scalar_type(), {}, {}, {}, {});
}

at::Tensor add(const at::Tensor& self, const at::Tensor&, const at::Scalar&) { return like(self); }
at::Tensor& addInPlace(at::Tensor& self, const at::Tensor&, const at::Scalar&) {
  launch();
  return self;
}
at::Tensor mm(const at::Tensor& self, const at::Tensor&) { return like(self); }
at::Tensor sum(const at::Tensor& self, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>) {
  return like(self);
}
at::Tensor softmax(const at::Tensor& self, int64_t, bool) { return like(self); }
std::tuple<at::Tensor, at::Tensor, at::Tensor> layerNorm(const at::Tensor& self, at::IntArrayRef,
                                                         const std::optional<at::Tensor>&,
                                                         const std::optional<at::Tensor>&, double) {
  at::Tensor first = like(self);
  return {std::move(first), empty(self.sizes(), self.scalar_type(), {}, {}, {}, {}),
          empty(self.sizes(), self.scalar_type(), {}, {}, {}, {})};
}
at::Tensor cat(const at::ITensorListRef& tensors, int64_t) { return like(*tensors.begin()); }
void foreachAdd(at::TensorList tensors, const at::Scalar&) {
  launch();
  for (const at::Tensor& tensor : tensors) tensor.unsafeGetTensorImpl()->bump_version();
}
at::Tensor cumsum(const at::Tensor& self, int64_t, std::optional<at::ScalarType>) { return like(self); }
at::Tensor& copy(at::Tensor& self, const at::Tensor&, bool) {
  launch();
  return self;
}
at::Tensor& indexPut(at::Tensor& self, const c10::List<std::optional<at::Tensor>>&, const at::Tensor&, bool,
                     bool) {
  launch();
  return self;
}

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("add.Tensor", TORCH_FN(add));
  library.impl("add_.Tensor", TORCH_FN(addInPlace));
  library.impl("mm", TORCH_FN(mm));
  library.impl("sum.dim_IntList", TORCH_FN(sum));
  library.impl("_softmax", TORCH_FN(softmax));
  library.impl("native_layer_norm", TORCH_FN(layerNorm));
  library.impl("cat", TORCH_FN(cat));
  library.impl("_foreach_add_.Scalar", TORCH_FN(foreachAdd));
  library.impl("cumsum", TORCH_FN(cumsum));
  library.impl("copy_", TORCH_FN(copy));
  library.impl("_index_put_impl_", TORCH_FN(indexPut));
}

template <typename Call>
double timed(Call& call, int calls) {
  walked = 0;
  const double begin = nanoseconds();
  for (int i = 0; i < calls; ++i) call();
  return (nanoseconds() - begin - walked) / calls;
}

// The calls on both devices in turns, with caches as the calls before left them, and as a launch leaves them.
template <typename Make>
void compare(const char* name, const Make& make, int calls = 20'000) {
  if (only != nullptr && std::strcmp(only, name) != 0) return;
  auto plain = make(c10::Device(kNull, 0));
  auto boxed = make(c10::Device(flagos::kDeviceType, 0));
  for (const bool cold : {false, true}) {
    walk = cold;
    std::vector<double> native, ours, added;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      native.push_back(timed(plain, cold ? calls / 40 : calls / 2));
      ours.push_back(timed(boxed, cold ? calls / 40 : calls / 2));
      added.push_back(ours.back() - native.back());
    }
    for (auto* list : {&native, &ours, &added}) std::sort(list->begin(), list->end());
    std::printf("{\"case\": \"%s%s\", \"native_ns\": %.1f, \"flagos_ns\": %.1f, \"added_ns\": %.1f}\n", name,
                cold ? ", cold caches" : "", native[kRepeats / 2], ours[kRepeats / 2], added[kRepeats / 2]);
    std::fflush(stdout);
  }
}

at::Tensor made(c10::Device device) { return at::empty({64, 64}, at::TensorOptions(device)); }

}  // namespace

namespace at {

struct HPUHooks final : HPUHooksInterface {
  explicit HPUHooks(HPUHooksArgs) {}
  void init() const override {}
  bool hasHPU() const override { return true; }
  DeviceIndex deviceCount() const override { return kDevices; }
  const Generator& getDefaultGenerator(DeviceIndex) const override {
    static const Generator none = at::detail::getDefaultCPUGenerator();
    return none;
  }
};
REGISTER_HPU_HOOKS(HPUHooks);

}  // namespace at

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: boxing_bench <HAL library> [case]\n");
    return 2;
  }
  static NullAllocator allocator;
  c10::SetAllocator(kNull, &allocator);
  static NullGuard guard;
  const c10::impl::DeviceGuardImplRegistrar registrar(kNull, &guard);
  flagos::ops::registerOperatorsOnActivation();
  flagos::BackendRequest request;
  request.path = argv[1];
  request.name = "reference";
  request.companion = "hpu";
  flagos::setBackendRequests({request});
  flagos::activate();
  const auto records = flagos::backendRecords();
  if (records[0].companion == nullptr) {
    std::fprintf(stderr, "no companion: %s\n", records[0].companion_reason.c_str());
    return 1;
  }
  if (argc > 2) only = argv[2];
  at::NoGradGuard no_grad;
  compare("add", [](c10::Device d) { return [x = made(d), y = made(d)] { at::add(x, y); }; });
  compare("add_", [](c10::Device d) {
    return [x = made(d), y = made(d)]() mutable { at::_ops::add__Tensor::call(x, y, 1); };
  });
  compare("mm", [](c10::Device d) { return [x = made(d), y = made(d)] { at::mm(x, y); }; });
  compare("sum", [](c10::Device d) { return [x = made(d)] { at::sum(x, {0}); }; });
  compare("softmax", [](c10::Device d) { return [x = made(d)] { at::_softmax(x, 0, false); }; });
  compare("layer_norm", [](c10::Device d) {
    return [x = made(d), w = made(d), b = made(d)] { at::native_layer_norm(x, {64}, w, b, 1e-5); };
  });
  compare("cat of two",
          [](c10::Device d) { return [x = std::vector<at::Tensor>{made(d), made(d)}] { at::cat(x); }; });
  compare("by schema: cumsum", [](c10::Device d) { return [x = made(d)] { at::cumsum(x, 0); }; });
  compare("index_put_", [](c10::Device d) {
    c10::List<std::optional<at::Tensor>> indices;
    indices.push_back(at::empty({8}, at::TensorOptions(d).dtype(at::kLong)));
    return [x = made(d), indices, v = at::empty({8, 64}, at::TensorOptions(d))]() mutable {
      at::index_put_(x, indices, v);
    };
  });
  compare("copy_", [](c10::Device d) { return [x = made(d), y = made(d)]() mutable { x.copy_(y); }; });
  compare(
      "foreach add_, 50 tensors",
      [](c10::Device d) {
        std::vector<at::Tensor> list;
        for (int i = 0; i < 50; ++i) list.push_back(made(d));
        return [list] { at::_foreach_add_(list, 1.0); };
      },
      2'000);
  return 0;
}
