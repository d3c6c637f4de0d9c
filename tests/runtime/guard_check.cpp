// Checks of the guard and the hooks as PyTorch's C++ reaches them: through c10's registry, with no header of
// ours. Each function returns what is wrong; empty if nothing. Called by test_guard.py.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/version.h>

#include <string>

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

std::string answer;

const c10::impl::DeviceGuardImplInterface& guard() { return *c10::impl::getDeviceGuardImpl(kType); }
const at::PrivateUse1HooksInterface& hooks() { return at::detail::getPrivateUse1Hooks(); }
c10::Device device(int index) { return c10::Device(kType, static_cast<c10::DeviceIndex>(index)); }

#define EXPECT(condition) \
  if (!(condition)) answer += std::string("not true: ") + #condition + "; "

// The message of the error that `call` throws; "no error" if it throws none.
template <typename Call>
std::string errorOf(Call&& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

template <typename Checks>
const char* run(Checks&& checks) {
  answer.clear();
  try {
    checks();
  } catch (const std::exception& error) {
    answer += error.what();
  }
  return answer.c_str();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* check_devices_are_remembered_and_used_late() {
  return run([] {
    EXPECT(guard().type() == kType);
    EXPECT(guard().deviceCount() == 2);
    EXPECT(hooks().isBuilt() && hooks().isAvailable());
    EXPECT(hooks().deviceCount() == 2);
    guard().setDevice(device(1));  // as the autograd engine does on each of its threads
    EXPECT(guard().getDevice() == device(1));
    EXPECT(!hooks().hasPrimaryContext(1));
    EXPECT(hooks().maybeExchangeDevice(0) == 1);
    EXPECT(hooks().maybeExchangeDevice(1) == 0);
    EXPECT(!hooks().hasPrimaryContext(1));
    EXPECT(guard().exchangeDevice(device(-1)) == device(1));  // −1: the current one stays
    EXPECT(guard().exchangeDevice(device(0)) == device(1));
    EXPECT(guard().exchangeDevice(device(1)) == device(0));
    EXPECT(hooks().hasPrimaryContext(1));
    EXPECT(!hooks().hasPrimaryContext(-1) && !hooks().hasPrimaryContext(100));
    {
      c10::OptionalDeviceGuard inner(device(0));
      EXPECT(guard().getDevice() == device(0));
    }
    EXPECT(guard().getDevice() == device(1));
    EXPECT(contains(errorOf([] { guard().setDevice(device(2)); }), "device index 2 is out of range"));
    EXPECT(
        contains(errorOf([] { guard().exchangeDevice(device(100)); }), "device index 100 is out of range"));
    EXPECT(guard().getDevice() == device(1));
    guard().uncheckedSetDevice(device(0));
    EXPECT(guard().getDevice() == device(0));
  });
}

extern "C" __attribute__((visibility("default"))) const char* check_streams() {
  return run([] {
    const c10::Stream side = guard().getNewStream(device(1), 0);
    EXPECT(side.device() == device(1) && side.id() != 0);
    EXPECT(guard().getDefaultStream(device(1)).id() == 0);
    EXPECT(guard().getStream(device(-1)).device() == guard().getDevice());  // a real index, never −1
    EXPECT(guard().getStreamFromGlobalPool(device(0), true) !=
           guard().getStreamFromGlobalPool(device(0), false));
    EXPECT(guard().exchangeStream(side) == guard().getDefaultStream(device(1)));
    EXPECT(guard().getDevice() == device(0));  // exchanging a stream leaves the device
    EXPECT(guard().getStream(device(1)) == side);
    EXPECT(guard().exchangeStream(guard().getDefaultStream(device(1))) == side);
    guard().synchronizeStream(side);
    EXPECT(guard().queryStream(side));
    guard().synchronizeDevice(1);
#if TORCH_VERSION_MINOR >= 11
    EXPECT(guard().getStreamNativeHandle(side) !=
           guard().getStreamNativeHandle(guard().getDefaultStream(device(1))));
#endif
#if TORCH_VERSION_MINOR >= 12
    EXPECT(!guard().isStreamCapturing(side));
#endif
    const c10::Stream foreign(c10::Stream::DEFAULT, c10::Device(c10::kCPU));
    EXPECT(contains(errorOf([&] { guard().exchangeStream(foreign); }), "cpu"));
    EXPECT(contains(errorOf([&] { guard().queryStream(foreign); }), "cpu"));
    const c10::Stream invented(c10::Stream::UNSAFE, device(0), 12345);
    EXPECT(contains(errorOf([&] { guard().exchangeStream(invented); }), "no stream with id 12345"));
  });
}

extern "C" __attribute__((visibility("default"))) const char* check_events() {
  return run([] {
    const c10::Stream first = guard().getNewStream(device(0), 0);
    const c10::Stream other = guard().getNewStream(device(1), 0);
    void* event = nullptr;
    EXPECT(guard().queryEvent(nullptr));
    guard().block(nullptr, first);
    guard().synchronizeEvent(nullptr);
    EXPECT(contains(errorOf([&] { guard().record(&event, first, -1, c10::EventFlag::INVALID); }), "flag"));
    EXPECT(event == nullptr);
    EXPECT(contains(errorOf([&] { guard().record(&event, first, 1, c10::EventFlag::PYTORCH_DEFAULT); }),
                    "flagos:1"));
    EXPECT(event == nullptr);
    guard().record(&event, first, -1, c10::EventFlag::BACKEND_DEFAULT);
    void* end = nullptr;
    guard().record(&end, first, -1, c10::EventFlag::BACKEND_DEFAULT);
    guard().block(end, other);
    guard().synchronizeEvent(end);
    EXPECT(guard().queryEvent(event) && guard().queryEvent(end));
    EXPECT(guard().elapsedTime(event, end, 0) >= 0.0);
    EXPECT(contains(errorOf([&] { guard().elapsedTime(event, nullptr, 0); }), "recorded"));
    guard().destroyEvent(event, 0);
    guard().destroyEvent(end, 0);
    guard().destroyEvent(nullptr, -1);
    c10::Event moved(kType);
    moved.record(other);
    c10::Event owner = std::move(moved);
    owner.synchronize();
    EXPECT(owner.query() && owner.device_index() == 1);
  });
}

extern "C" __attribute__((visibility("default"))) const char* check_pointers(void* on_second, void* on_host) {
  return run([=] {
    EXPECT(hooks().getDeviceFromPtr(on_second) == device(1));
    EXPECT(hooks().getDeviceFromPtr(static_cast<char*>(on_second) + 17) == device(1));  // inside of a block
    EXPECT(contains(errorOf([=] { hooks().getDeviceFromPtr(on_host); }), "not memory of any flagos device"));
    EXPECT(contains(errorOf([] { hooks().getDeviceFromPtr(nullptr); }), "not memory of any flagos device"));
    EXPECT(!hooks().isPinnedPtr(on_host) && !hooks().isPinnedPtr(on_second) && !hooks().isPinnedPtr(nullptr));
    c10::DataPtr pinned = hooks().getPinnedMemoryAllocator()->allocate(64);
    EXPECT(hooks().isPinnedPtr(pinned.get()));
    EXPECT(contains(errorOf([&] { hooks().getDeviceFromPtr(pinned.get()); }), "pinned host memory"));
    EXPECT(hooks().getDefaultGenerator(-1).device() == guard().getDevice());
    EXPECT(hooks().getNewGenerator(1).device() == device(1));
    EXPECT(!(hooks().getNewGenerator(1) == hooks().getNewGenerator(1)));
  });
}

// After the shutdown: guards that still stand are undone without an error.
extern "C" __attribute__((visibility("default"))) const char* check_guards_outlive(void (*shut_down)()) {
  return run([=] {
    const c10::Stream side = guard().getNewStream(device(1), 0);
    c10::Event event(kType);
    event.record(side);
    c10::StreamGuard stream_guard(side);
    c10::DeviceGuard device_guard(device(0));
    shut_down();
    EXPECT(contains(errorOf([&] { guard().queryStream(side); }), "shut down"));
    EXPECT(contains(errorOf([&] { event.query(); }), "shut down"));
  });
}
