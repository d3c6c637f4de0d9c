// Checks of flagos/hal_support, one section a run: argv[1] names it. Prints what is wrong; the exit status
// counts.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "flagos/hal_support/hal.hpp"
#include "flagos/hal_support/sdk.hpp"

#define FLAGOS_SDK_STRUCT Maths
#define FLAGOS_SDK_SYMBOLS "support_check.def"
#include "flagos/hal_support/sdk_table.hpp"

using namespace flagos::hal_support;

namespace {

int wrong = 0;

void expect(bool condition, const char* text, int line) {
  if (condition) return;
  std::printf("line %d: %s\n", line, text);
  ++wrong;
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

flagos_hal_error now() {
  flagos_hal_error error = {};
  error.struct_size = sizeof(error);
  EXPECT(lastError(&error) == FLAGOS_HAL_STATUS_OK);
  return error;
}
bool contains(const char* text, const char* part) {
  return std::string(text).find(part) != std::string::npos;
}

void errors() {
  EXPECT(now().status == FLAGOS_HAL_STATUS_OK);
  EXPECT(std::string(now().message).empty() && std::string(now().function).empty());
  EXPECT(lastError(nullptr) == FLAGOS_HAL_STATUS_INVALID_ARGUMENT);
  {
    FunctionScope outer("memory.allocate");
    {
      FunctionScope inner("device.count");
      EXPECT(failVendor(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, 2, "vendorOutOfMemory", "asked %d\nhave %s", 5,
                        "less") == FLAGOS_HAL_STATUS_OUT_OF_MEMORY);
    }
    EXPECT(std::string(currentFunction()) == "memory.allocate");
  }
  EXPECT(std::string(currentFunction()).empty());
  EXPECT(std::string(now().message) == "asked 5 have less");
  EXPECT(std::string(now().function) == "device.count");
  EXPECT(std::string(now().vendor_name) == "vendorOutOfMemory" && now().vendor_code == 2);
  // A later failure may quote the one before it, whose text lies in the same buffer.
  fail(FLAGOS_HAL_STATUS_UNKNOWN, "again: %s", now().message);
  EXPECT(std::string(now().message) == "again: asked 5 have less");
  EXPECT(std::string(now().vendor_name).empty() && now().vendor_code == 0);
  // Too long: cut between characters, not inside one.
  std::string text;
  while (text.size() < 4000) text += "\xe2\x82\xac";
  fail(FLAGOS_HAL_STATUS_UNKNOWN, "%s", text.c_str());
  const std::string cut = now().message;
  EXPECT(cut.size() < sizeof(ErrorDetail::message) && cut.size() > sizeof(ErrorDetail::message) - 5);
  EXPECT(cut.size() % 3 == 0 && text.compare(0, cut.size(), cut) == 0);
  // Another thread has its own; a caller of a shorter structure gets what it knows.
  std::thread([] { EXPECT(now().status == FLAGOS_HAL_STATUS_OK); }).join();
  struct {
    flagos_hal_error known;
    char behind;
  } old = {};
  old.known.struct_size = offsetof(flagos_hal_error, vendor_name);
  EXPECT(lastError(&old.known) == FLAGOS_HAL_STATUS_OK);
  EXPECT(old.known.status == FLAGOS_HAL_STATUS_UNKNOWN && old.known.message == nullptr);
}

void sizedStructures() {
  flagos_hal_pointer_info full = {};
  full.kind = FLAGOS_HAL_MEMORY_DEVICE;
  full.size = 77;
  flagos_hal_pointer_info out = {};
  out.struct_size = sizeof(out);
  EXPECT(writeSized(&out, full) == FLAGOS_HAL_STATUS_OK && out.size == 77 && out.struct_size == sizeof(out));
  out = {};
  out.struct_size = offsetof(flagos_hal_pointer_info, size);
  EXPECT(writeSized(&out, full) == FLAGOS_HAL_STATUS_OK && out.size == 0 &&
         out.kind == FLAGOS_HAL_MEMORY_DEVICE);
  out.struct_size = sizeof(out) + 64;  // a later core's
  EXPECT(writeSized(&out, full) == FLAGOS_HAL_STATUS_OK && out.struct_size == sizeof(out) + 64);
  out.struct_size = 0;
  EXPECT(writeSized(&out, full) == FLAGOS_HAL_STATUS_INVALID_ARGUMENT);
  EXPECT(writeSized<flagos_hal_pointer_info>(nullptr, full) == FLAGOS_HAL_STATUS_INVALID_ARGUMENT);
  flagos_hal_stream_options options = {sizeof(size_t) + sizeof(int32_t), -3, 99};
  EXPECT(readSized(&options).priority == -3 && readSized(&options).flags == 0);
  EXPECT(readSized<flagos_hal_stream_options>(nullptr).priority == 0);
}

void states() {
  LibraryState& library = state();
  EXPECT(call("device.count", [] { return FLAGOS_HAL_STATUS_OK; }) == FLAGOS_HAL_STATUS_NOT_INITIALIZED);
  EXPECT(std::string(now().function) == "device.count" && contains(now().message, "has not been called"));
  EXPECT(releaseCall("memory.release", []() -> flagos_hal_status { std::abort(); }) == FLAGOS_HAL_STATUS_OK);
  EXPECT(callAnytime("system.info", [] { return FLAGOS_HAL_STATUS_OK; }) == FLAGOS_HAL_STATUS_OK);
  EXPECT(library.shutdown([] { std::abort(); }) == FLAGOS_HAL_STATUS_OK);
  EXPECT(library.init([] { return fail(FLAGOS_HAL_STATUS_UNAVAILABLE, "none"); }) ==
         FLAGOS_HAL_STATUS_UNAVAILABLE);
  EXPECT(std::string(now().function) == "system.init" && !library.ready());
  EXPECT(library.init([]() -> flagos_hal_status { throw std::runtime_error("thrown"); }) ==
         FLAGOS_HAL_STATUS_UNKNOWN);
  EXPECT(contains(now().message, "thrown") && !library.ready());
  // Concurrent calls wait for each other, and one of them opens.
  std::atomic<int> opened{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      EXPECT(library.init([&]() -> flagos_hal_status {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ++opened;
        return FLAGOS_HAL_STATUS_OK;
      }) == FLAGOS_HAL_STATUS_OK);
      EXPECT(library.ready());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(opened == 1);
  EXPECT(call("memory.copy", []() -> flagos_hal_status { throw std::bad_alloc(); }) ==
         FLAGOS_HAL_STATUS_OUT_OF_MEMORY);
  EXPECT(call("memory.copy", []() -> flagos_hal_status { throw 5; }) == FLAGOS_HAL_STATUS_UNKNOWN);
  EXPECT(library.shutdown([] { throw std::runtime_error("ignored"); }) == FLAGOS_HAL_STATUS_OK);
  EXPECT(call("device.count", [] { return FLAGOS_HAL_STATUS_OK; }) == FLAGOS_HAL_STATUS_NOT_INITIALIZED);
  EXPECT(contains(now().message, "was shut down"));
  EXPECT(library.init([] { return FLAGOS_HAL_STATUS_OK; }) == FLAGOS_HAL_STATUS_OK && library.ready());
}

// Runs `body` in a forked child and takes over what it found wrong.
template <typename Body>
void inChild(Body body) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    wrong = 0;
    body();
    std::fflush(stdout);
    ::_exit(wrong);
  }
  int status = 0;
  EXPECT(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void forks() {
  const auto ok = [] { return FLAGOS_HAL_STATUS_OK; };
  inChild([&] {
    EXPECT(state().init(ok) == FLAGOS_HAL_STATUS_OK);
    EXPECT(call("device.count", ok) == FLAGOS_HAL_STATUS_OK);
  });
  // A fork while another thread is within init: its child must answer, not wait for a lock that nobody will
  // release.
  std::atomic<bool> inside{false};
  std::atomic<bool> go_on{false};
  std::thread opener([&] {
    EXPECT(state().init([&]() -> flagos_hal_status {
      inside = true;
      while (!go_on) std::this_thread::yield();
      return FLAGOS_HAL_STATUS_OK;
    }) == FLAGOS_HAL_STATUS_OK);
  });
  while (!inside) std::this_thread::yield();
  inChild([&] { EXPECT(state().init(ok) == FLAGOS_HAL_STATUS_FORKED); });
  go_on = true;
  opener.join();
  const auto refused = [&] {
    EXPECT(call("device.count", ok) == FLAGOS_HAL_STATUS_FORKED && contains(now().message, "spawn"));
    EXPECT(callAnytime("system.info", ok) == FLAGOS_HAL_STATUS_FORKED);
    EXPECT(state().init(ok) == FLAGOS_HAL_STATUS_FORKED);
    EXPECT(state().shutdown([] { std::abort(); }) == FLAGOS_HAL_STATUS_FORKED);
    EXPECT(releaseCall("memory.release", []() -> flagos_hal_status { std::abort(); }) ==
           FLAGOS_HAL_STATUS_OK);
    EXPECT(now().status == FLAGOS_HAL_STATUS_FORKED);
  };
  inChild([&] {
    refused();
    inChild(refused);
  });
  EXPECT(state().shutdown([] {}) == FLAGOS_HAL_STATUS_OK);
  inChild([&] { EXPECT(state().init(ok) == FLAGOS_HAL_STATUS_FORKED); });
  EXPECT(state().init(ok) == FLAGOS_HAL_STATUS_OK);
}

void handles() {
  struct Thing {
    int value;
  };
  Registry<flagos_hal_stream, Thing> registry("stream");
  flagos_hal_stream* first = registry.add(std::make_shared<Thing>(Thing{1}));
  flagos_hal_stream* second = registry.add(std::make_shared<Thing>(Thing{2}));
  EXPECT(registry.find(first)->value == 1 && registry.size() == 2);
  const std::shared_ptr<Thing> used = registry.find(first);
  EXPECT(registry.take(first) == used && !registry.take(first) && !registry.find(first));
  EXPECT(used->value == 1);  // alive as long as somebody uses it
  EXPECT(registry.unknown(first) == FLAGOS_HAL_STATUS_INVALID_HANDLE &&
         contains(now().message, "not a live stream"));
  EXPECT(registry.unknown(nullptr) == FLAGOS_HAL_STATUS_INVALID_HANDLE && contains(now().message, "is null"));
  EXPECT(registry.all().size() == 1 && registry.takeAll().size() == 1 && !registry.find(second));
}

struct Runtime {
  static inline int32_t current = 0;
  static inline int sets = 0;
  static inline bool failing = false;
  static flagos_hal_status getCurrent(int32_t* out) {
    *out = current;
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status setCurrent(int32_t device) {
    ++sets;
    if (failing) return fail(FLAGOS_HAL_STATUS_DEVICE_BUSY, "busy");
    current = device;
    return FLAGOS_HAL_STATUS_OK;
  }
};

void deviceSwitch() {
  {
    DeviceSwitch<Runtime> same(0);
    EXPECT(same.status() == FLAGOS_HAL_STATUS_OK);
  }
  EXPECT(Runtime::sets == 0);
  {
    DeviceSwitch<Runtime> other(3);
    EXPECT(other.status() == FLAGOS_HAL_STATUS_OK && Runtime::current == 3);
    DeviceSwitch<Runtime> nested(1);
    EXPECT(Runtime::current == 1);
  }
  EXPECT(Runtime::current == 0 && Runtime::sets == 4);
  Runtime::failing = true;
  {
    DeviceSwitch<Runtime> failed(2);
    EXPECT(failed.status() == FLAGOS_HAL_STATUS_DEVICE_BUSY);
  }
  EXPECT(Runtime::sets == 5);
}

void sdk() {
  SdkLibrary missing;
  ::unsetenv("NO_SUCH_SDK");
  EXPECT(missing.open(
             {"Acme runtime",
              {"libacme.so.2", "libacme.so"},
              {SdkLibrary::kLoaded, SdkLibrary::kLoaderPath, "$NO_SUCH_SDK/lib", "/no/such-*/lib", "/tmp"},
              "Install the Acme runtime or set NO_SUCH_SDK"}) == FLAGOS_HAL_STATUS_UNAVAILABLE);
  const std::string text = now().message;
  EXPECT(text.find("the Acme runtime was not found. Tried: libacme.so.2 (not loaded already)") == 0);
  for (const char* part : {"libacme.so (not on the loader path)", "$NO_SUCH_SDK/lib (NO_SUCH_SDK is not set)",
                           "/no/such-*/lib (no such folder)", "/tmp/libacme.so (no such file)",
                           "Install the Acme runtime or set NO_SUCH_SDK"}) {
    EXPECT(contains(text.c_str(), part));
  }
  EXPECT(!missing.isOpen() && std::string(missing.path()).empty() && !missing.find("cos"));

  SdkLibrary maths;
  int asked = 0;
  const SdkSearch search = {
      "maths",
      {"libm.so.6"},
      {SdkLibrary::kLoaderPath, SdkLibrary::kLoaded},
      "-",
      [&](void*, const std::string&) -> std::string { return ++asked == 1 ? "it is another one" : ""; }};
  EXPECT(maths.open(search) == FLAGOS_HAL_STATUS_OK && asked == 2);
  EXPECT(contains(maths.path(), "/libm.so.6"));
  EXPECT(maths.open(search) == FLAGOS_HAL_STATUS_OK && asked == 2);
  Maths functions;
  EXPECT(functions.load(maths) == FLAGOS_HAL_STATUS_UNAVAILABLE);
  EXPECT(contains(now().message, "lacks functions that this backend needs: acmeInit, acmeStop"));
  EXPECT(functions.cos && functions.cos(0) == 1 && !functions.acmeMaybe);
}

// A vendor with a current device, queues of its own and a device that can be lost.
struct Vendor {
  static constexpr const char* kVendor = "check";
  static constexpr const char* kVersion = "1";
  using Stream = int;
  using Event = int;
  static inline thread_local int32_t current = 0;
  static inline int32_t used_on = -1;
  static inline int destroyed = 0;
  static inline int recorded_queries = 0;
  static inline bool lose = false;

  static flagos_hal_status open() { return FLAGOS_HAL_STATUS_OK; }
  static void close() {}
  static flagos_hal_status count(int32_t* out) { return *out = 2, FLAGOS_HAL_STATUS_OK; }
  static flagos_hal_status setCurrent(int32_t device) { return current = device, FLAGOS_HAL_STATUS_OK; }
  static flagos_hal_status getCurrent(int32_t* out) { return *out = current, FLAGOS_HAL_STATUS_OK; }
  static flagos_hal_status properties(int32_t, flagos_hal_device_properties* out) {
    out->warp_size = 32;
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status memoryInfo(int32_t, uint64_t* out_free, uint64_t* out_total) {
    *out_free = *out_total = 1000;
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status allocate(int32_t, uint64_t size, void** out) {
    used_on = current;
    *out = std::malloc(size);
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status release(int32_t, void* pointer) {
    used_on = current;
    std::free(pointer);
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status copy(int32_t, void*, const void*, uint64_t, int32_t) {
    return lose ? fail(FLAGOS_HAL_STATUS_DEVICE_LOST, "gone") : FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status fill(int32_t, void*, int32_t, uint64_t) { return FLAGOS_HAL_STATUS_OK; }
  static flagos_hal_status createStream(int32_t, int32_t priority, Stream* out) {
    return *out = 100 + priority, FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status destroyStream(Stream) { return ++destroyed, FLAGOS_HAL_STATUS_OK; }
  static flagos_hal_status defaultStream(int32_t, Stream* out) { return *out = 7, FLAGOS_HAL_STATUS_OK; }
  static flagos_hal_status queryStream(Stream) { return FLAGOS_HAL_STATUS_NOT_READY; }
  static flagos_hal_status synchronizeStream(Stream) { return FLAGOS_HAL_STATUS_OK; }
  static flagos_hal_status waitEvent(Stream, Event) { return used_on = current, FLAGOS_HAL_STATUS_OK; }
  static void* nativeHandle(Stream stream) { return reinterpret_cast<void*>(static_cast<intptr_t>(stream)); }
  static flagos_hal_status copyAsync(Stream, void*, const void*, uint64_t, int32_t) {
    return used_on = current, FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status fillAsync(Stream, void*, int32_t, uint64_t) { return FLAGOS_HAL_STATUS_OK; }
  static flagos_hal_status priorityRange(int32_t, int32_t* least, int32_t* greatest) {
    *least = 1;
    *greatest = -4;
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status createEvent(int32_t, uint32_t, Event* out) {
    return *out = 1, FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status destroyEvent(Event) { return FLAGOS_HAL_STATUS_OK; }
  static flagos_hal_status recordEvent(Event, Stream) { return FLAGOS_HAL_STATUS_OK; }
  static flagos_hal_status queryEvent(Event) { return ++recorded_queries, FLAGOS_HAL_STATUS_NOT_READY; }
  static flagos_hal_status synchronizeEvent(Event) { return FLAGOS_HAL_STATUS_OK; }
  static flagos_hal_status elapsed(Event, Event, double* out_ms) { return *out_ms = 2, FLAGOS_HAL_STATUS_OK; }
};

void wholeHal() {
  const flagos_hal_api& api = *apiOf<Vendor>();
  EXPECT(&api == apiOf<Vendor>() && !api.host && !api.peer && !api.stream->host_callback);
  EXPECT(api.system->init() == FLAGOS_HAL_STATUS_OK);
  EXPECT(api.device->set_current(0) == FLAGOS_HAL_STATUS_OK);
  void* pointer = nullptr;
  EXPECT(api.memory->allocate(1, 64, &pointer) == FLAGOS_HAL_STATUS_OK && Vendor::used_on == 1 &&
         Vendor::current == 0);
  EXPECT(api.memory->release(0, pointer) == FLAGOS_HAL_STATUS_INVALID_HANDLE);
  EXPECT(api.memory->release(1, static_cast<char*>(pointer) + 1) == FLAGOS_HAL_STATUS_INVALID_HANDLE);
  flagos_hal_device_properties properties = {};
  properties.struct_size = sizeof(properties);
  EXPECT(api.device->properties(1, &properties) == FLAGOS_HAL_STATUS_OK);
  EXPECT(properties.warp_size == 32 && properties.clock_rate_khz == FLAGOS_HAL_UNKNOWN);
  flagos_hal_pointer_info info = {};
  info.struct_size = sizeof(info);
  EXPECT(api.memory->pointer_info(static_cast<char*>(pointer) + 63, &info) == FLAGOS_HAL_STATUS_OK);
  EXPECT(info.kind == FLAGOS_HAL_MEMORY_DEVICE && info.device == 1 && info.base == pointer &&
         info.size == 64);
  // Priorities are clamped; the native handle is the vendor's.
  flagos_hal_stream* stream = nullptr;
  flagos_hal_stream_options options = {sizeof(options), -100, 0};
  void* native = nullptr;
  EXPECT(api.stream->create(1, &options, &stream) == FLAGOS_HAL_STATUS_OK);
  EXPECT(api.stream->native_handle(stream, &native) == FLAGOS_HAL_STATUS_OK &&
         native == reinterpret_cast<void*>(96));
  EXPECT(api.stream->query(stream) == FLAGOS_HAL_STATUS_NOT_READY);
  options.flags = 1;
  EXPECT(api.stream->create(1, &options, &stream) == FLAGOS_HAL_STATUS_INVALID_ARGUMENT);
  Vendor::used_on = -1;
  EXPECT(api.memory->copy_async(stream, pointer, pointer, 8, FLAGOS_HAL_COPY_DEVICE_TO_DEVICE) ==
         FLAGOS_HAL_STATUS_OK);
  EXPECT(Vendor::used_on == 1 && Vendor::current == 0);
  flagos_hal_stream* first = nullptr;
  flagos_hal_stream* again = nullptr;
  EXPECT(api.stream->default_stream(1, &first) == FLAGOS_HAL_STATUS_OK);
  EXPECT(api.stream->default_stream(1, &again) == FLAGOS_HAL_STATUS_OK && first == again);
  EXPECT(api.stream->destroy(first) == FLAGOS_HAL_STATUS_INVALID_HANDLE);
  // An event that was never recorded is reached, whatever the vendor's runtime says of such a thing.
  flagos_hal_event* event = nullptr;
  EXPECT(api.event->create(1, FLAGOS_HAL_EVENT_INTERPROCESS, &event) == FLAGOS_HAL_STATUS_UNSUPPORTED);
  EXPECT(api.event->create(1, FLAGOS_HAL_EVENT_TIMING, &event) == FLAGOS_HAL_STATUS_OK);
  EXPECT(api.event->query(event) == FLAGOS_HAL_STATUS_OK && Vendor::recorded_queries == 0);
  double ms = 0;
  EXPECT(api.event->elapsed(event, event, &ms) == FLAGOS_HAL_STATUS_INVALID_STATE);
  EXPECT(api.event->record(event, stream) == FLAGOS_HAL_STATUS_OK);
  EXPECT(api.event->query(event) == FLAGOS_HAL_STATUS_NOT_READY && Vendor::recorded_queries == 1);
  EXPECT(api.event->elapsed(event, event, &ms) == FLAGOS_HAL_STATUS_OK && ms == 2);
  // A lost device stays lost, the other one goes on, releasing is still OK.
  Vendor::lose = true;
  EXPECT(api.memory->copy(1, pointer, pointer, 1, FLAGOS_HAL_COPY_DEVICE_TO_HOST) ==
         FLAGOS_HAL_STATUS_DEVICE_LOST);
  Vendor::lose = false;
  EXPECT(api.memory->copy(1, pointer, pointer, 1, FLAGOS_HAL_COPY_DEVICE_TO_HOST) ==
         FLAGOS_HAL_STATUS_DEVICE_LOST);
  EXPECT(api.device->health(1) == FLAGOS_HAL_STATUS_DEVICE_LOST &&
         api.device->health(0) == FLAGOS_HAL_STATUS_OK);
  EXPECT(api.memory->copy(0, pointer, pointer, 1, FLAGOS_HAL_COPY_DEVICE_TO_HOST) == FLAGOS_HAL_STATUS_OK);
  EXPECT(api.stream->query(stream) == FLAGOS_HAL_STATUS_DEVICE_LOST);
  EXPECT(api.event->destroy(event) == FLAGOS_HAL_STATUS_OK &&
         api.memory->release(1, pointer) == FLAGOS_HAL_STATUS_OK);
  std::free(pointer);  // a lost device's memory is not given back to it
  EXPECT(api.system->shutdown() == FLAGOS_HAL_STATUS_OK && Vendor::destroyed == 0);
  EXPECT(api.system->init() == FLAGOS_HAL_STATUS_OK && api.device->health(1) == FLAGOS_HAL_STATUS_OK);
  EXPECT(api.stream->create(0, nullptr, &stream) == FLAGOS_HAL_STATUS_OK);
  EXPECT(api.system->shutdown() == FLAGOS_HAL_STATUS_OK && Vendor::destroyed == 1);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string section = count > 1 ? arguments[1] : "";
  const struct {
    const char* name;
    void (*run)();
  } sections[] = {{"errors", errors},   {"sized structures", sizedStructures},
                  {"states", states},   {"forks", forks},
                  {"handles", handles}, {"device switch", deviceSwitch},
                  {"sdk", sdk},         {"whole hal", wholeHal}};
  for (const auto& each : sections) {
    if (section == each.name) {
      each.run();
      return wrong;
    }
  }
  std::printf("no section '%s'\n", section.c_str());
  return 99;
}
