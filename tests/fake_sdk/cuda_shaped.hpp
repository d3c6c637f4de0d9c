// A runtime in CUDA's shape over host memory, for tests without hardware: real streams and events, several
// devices, and strict where a real one would be lenient or would only sometimes fail.
//
// What lies under it is a copy of the reference backend's library, `libfake_device.so` beside the fake, so
// that a process may use the reference backend itself as well. A vendor's file includes this and defines the
// prefix:
//
//   #define FAKE(name) cuda##name
//   #include "tests/fake_sdk/cuda_shaped.hpp"
//
// Strict: unknown flags, wrong kinds, ranges outside an allocation, a stream or event of another device than
// the current one, a second free, use after destroy: each is an error of the number that the vendors give it.
// Like a real one: a copy from pageable memory, one within the device and a fill return before they are done;
// NotReady and other errors stay for GetLastError; free waits for the device; an API call that meets an error
// which nobody took counts in fake_untaken_errors.
//
//   FAKE_SDK_FAIL=<function without prefix>[:nth][=code]   the nth call (1) fails with the code (999)
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "flagos/hal.h"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace fake {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kMemoryAllocation = 2;
constexpr int kInitialization = 3;
constexpr int kNoDevice = 100;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidHandle = 400;
constexpr int kIllegalState = 401;
constexpr int kNotReady = 600;
constexpr int kIllegalAddress = 700;
constexpr int kPeerEnabled = 704;
constexpr int kPeerNotEnabled = 705;
constexpr int kRegistered = 712;
constexpr int kNotRegistered = 713;
constexpr int kNotSupported = 801;
constexpr int kCapture = 900;
constexpr int kUnknown = 999;

struct Allocation {
  uint64_t size;
  int device;  // −1: pinned
};

struct State {
  std::mutex mutex;  // guards the containers
  const flagos_hal_api* hal = nullptr;
  pid_t owner = 0;
  int devices = 0;
  std::map<uintptr_t, Allocation> memory;
  std::map<uintptr_t, uint64_t> registered;
  std::map<void*, int> streams;  // device
  struct EventState {
    int device;
    bool timing, recorded;
  };
  std::map<void*, EventState> events;
  std::set<std::pair<int, int>> peers;
  std::vector<bool> lost;
  std::vector<void*>
      staging;  // buffers of copies from pageable memory, kept to the end: they are small in tests
};

inline State& state() {
  static State& all = *new State;
  return all;
}

inline thread_local int current = 0;
inline thread_local int last_error = 0;
inline std::atomic<int> untaken{0};

inline int codeOf(flagos_hal_status status) {
  switch (status) {
    case FLAGOS_HAL_STATUS_OK:
      return kSuccess;
    case FLAGOS_HAL_STATUS_NOT_READY:
      return kNotReady;
    case FLAGOS_HAL_STATUS_INVALID_ARGUMENT:
      return kInvalidValue;
    case FLAGOS_HAL_STATUS_INVALID_HANDLE:
      return kInvalidHandle;
    case FLAGOS_HAL_STATUS_INVALID_DEVICE:
      return kInvalidDevice;
    case FLAGOS_HAL_STATUS_OUT_OF_MEMORY:
      return kMemoryAllocation;
    case FLAGOS_HAL_STATUS_UNSUPPORTED:
      return kNotSupported;
    case FLAGOS_HAL_STATUS_DEVICE_LOST:
      return kIllegalAddress;
    case FLAGOS_HAL_STATUS_NOT_INITIALIZED:
    case FLAGOS_HAL_STATUS_FORKED:
      return kInitialization;
    case FLAGOS_HAL_STATUS_CAPTURE:
      return kCapture;
    case FLAGOS_HAL_STATUS_INVALID_STATE:
      return kIllegalState;
    default:
      return kUnknown;
  }
}

// Opens what lies under the fake. Once; false in a fork of a process that did.
inline bool ready() {
  State& all = state();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (all.hal != nullptr) return all.owner == ::getpid();
  Dl_info here = {};
  ::dladdr(reinterpret_cast<void*>(&ready), &here);
  std::string file = here.dli_fname ? here.dli_fname : "";
  file = file.substr(0, file.rfind('/') + 1) + "libfake_device.so";
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto query =
      library ? reinterpret_cast<flagos_hal_query_fn>(::dlsym(library, FLAGOS_HAL_QUERY_SYMBOL)) : nullptr;
  const flagos_hal_api* hal = nullptr;
  if (query == nullptr || query(FLAGOS_HAL_ABI_MAJOR, FLAGOS_HAL_ABI_MINOR, &hal) != 0 ||
      hal->system->init() != 0) {
    std::fprintf(stderr, "fake SDK: %s cannot be used: %s\n", file.c_str(),
                 library ? "init failed" : ::dlerror());
    std::abort();
  }
  hal->device->count(&all.devices);
  all.lost.assign(static_cast<size_t>(all.devices), false);
  all.owner = ::getpid();
  all.hal = hal;
  return true;
}

// Whether FAKE_SDK_FAIL means this call; the code it fails with, else 0.
inline int injected(const char* function) {
  static const std::string plan = [] {
    const char* text = std::getenv("FAKE_SDK_FAIL");
    return std::string(text ? text : "");
  }();
  static std::atomic<int> calls{0};
  if (plan.empty()) return 0;
  const std::string name = plan.substr(0, plan.find_first_of(":="));
  if (name != function) return 0;
  const size_t colon = plan.find(':');
  const size_t equal = plan.find('=');
  const int nth = colon == std::string::npos ? 1 : std::atoi(plan.c_str() + colon + 1);
  const int code = equal == std::string::npos ? kUnknown : std::atoi(plan.c_str() + equal + 1);
  return ++calls == nth ? code : 0;
}

// Every call: counts an error that was left lying, opens, injects, remembers its own error. Those that use
// the context of a device that is lost fail.
template <typename Body>
int call(const char* function, Body&& body, bool uses_context = true) {
  if (last_error != 0) ++untaken;
  int code = kInitialization;
  if (ready()) {
    State& all = state();
    code = injected(function);
    if (code == kIllegalAddress) all.lost[static_cast<size_t>(current)] = true;
    if (code == 0) {
      const bool dead = uses_context && current < all.devices && all.lost[static_cast<size_t>(current)];
      code = dead ? kIllegalAddress : body(all, *all.hal);
    }
  }
  if (code != 0) last_error = code;
  return code;
}

inline bool validDevice(const State& all, int device) { return device >= 0 && device < all.devices; }

// The allocation that holds [pointer, pointer + size), or null. Lock held.
inline const Allocation* holding(const State& all, const void* pointer, uint64_t size) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto it = all.memory.upper_bound(address);
  if (it == all.memory.begin()) return nullptr;
  --it;
  return address + size <= it->first + it->second.size ? &it->second : nullptr;
}
inline bool isDevice(State& all, const void* pointer, uint64_t size) {
  std::lock_guard<std::mutex> lock(all.mutex);
  const Allocation* found = holding(all, pointer, size);
  return found != nullptr && found->device >= 0;
}
inline bool touchesDevice(State& all, const void* pointer) {
  std::lock_guard<std::mutex> lock(all.mutex);
  const Allocation* found = holding(all, pointer, 1);
  return found != nullptr && found->device >= 0;
}
inline bool isPinned(State& all, const void* pointer, uint64_t size) {
  std::lock_guard<std::mutex> lock(all.mutex);
  const Allocation* found = holding(all, pointer, size);
  if (found != nullptr) return found->device < 0;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto it = all.registered.upper_bound(address);
  if (it == all.registered.begin()) return false;
  --it;
  return address + size <= it->first + it->second;
}

inline int checkKind(State& all, const void* destination, const void* source, uint64_t size, int kind) {
  if (kind < 0 || kind > 3 || !destination || !source) return kInvalidValue;
  const bool to_device = kind == 1 || kind == 3;
  const bool from_device = kind == 2 || kind == 3;
  if (to_device ? !isDevice(all, destination, size) : touchesDevice(all, destination)) return kInvalidValue;
  if (from_device ? !isDevice(all, source, size) : touchesDevice(all, source)) return kInvalidValue;
  return kSuccess;
}

// The stream behind a handle; null is the default stream of the current device. A stream must be of the
// current device.
inline int find(State& all, const flagos_hal_api& hal, void* handle, flagos_hal_stream** out) {
  if (handle == nullptr) return codeOf(hal.stream->default_stream(current, out));
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto it = all.streams.find(handle);
  if (it == all.streams.end() || it->second != current) return kInvalidHandle;
  *out = static_cast<flagos_hal_stream*>(handle);
  return kSuccess;
}

template <typename Body>
int onStream(const char* function, void* handle, Body&& body) {
  return call(function, [&](State& all, const flagos_hal_api& hal) {
    flagos_hal_stream* stream = nullptr;
    const int code = find(all, hal, handle, &stream);
    return code != 0 ? code : body(all, hal, stream);
  });
}

// As a driver does: from pageable memory through a buffer of its own, so that the call need not wait.
inline int queueCopy(State& all, const flagos_hal_api& hal, flagos_hal_stream* stream, void* destination,
                     const void* source, size_t size, int kind) {
  const int wrong = checkKind(all, destination, source, size, kind);
  if (wrong != 0) return wrong;
  if (kind == 1 && !isPinned(all, source, size)) {
    void* buffer = std::malloc(size);
    std::memcpy(buffer, source, size);
    std::lock_guard<std::mutex> lock(all.mutex);
    all.staging.push_back(buffer);
    source = buffer;
  }
  const int code = codeOf(hal.memory->copy_async(stream, destination, source, size, kind));
  // To pageable memory the call itself waits.
  if (code == 0 && kind == 2 && !isPinned(all, destination, size))
    return codeOf(hal.stream->synchronize(stream));
  return code;
}

}  // namespace fake

FAKE_EXPORT int fake_untaken_errors() { return fake::untaken.load(); }

FAKE_EXPORT int FAKE(GetLastError)() {
  const int code = fake::last_error;
  fake::last_error = 0;
  return code;
}
FAKE_EXPORT const char* FAKE(GetErrorString)(int code) {
  switch (code) {
    case fake::kSuccess:
      return "no error";
    case fake::kInvalidValue:
      return "invalid argument";
    case fake::kMemoryAllocation:
      return "out of memory";
    case fake::kInvalidDevice:
      return "invalid device ordinal";
    case fake::kInvalidHandle:
      return "invalid resource handle";
    case fake::kIllegalAddress:
      return "an illegal memory access was encountered";
    default:
      return "an error of the fake";
  }
}
FAKE_EXPORT int FAKE(RuntimeGetVersion)(int* version) { return *version = 13000, 0; }
FAKE_EXPORT int FAKE(DriverGetVersion)(int* version) { return *version = 13000, 0; }

FAKE_EXPORT int FAKE(GetDeviceCount)(int* count) {
  return fake::call(
      "GetDeviceCount",
      [&](fake::State& all, const flagos_hal_api&) {
        *count = all.devices;
        return all.devices == 0 ? fake::kNoDevice : fake::kSuccess;
      },
      false);
}
FAKE_EXPORT int FAKE(SetDevice)(int device) {
  return fake::call(
      "SetDevice",
      [&](fake::State& all, const flagos_hal_api&) {
        if (!fake::validDevice(all, device)) return fake::kInvalidDevice;
        fake::current = device;
        return fake::kSuccess;
      },
      false);
}
FAKE_EXPORT int FAKE(GetDevice)(int* device) {
  return fake::call(
      "GetDevice",
      [&](fake::State&, const flagos_hal_api&) {
        *device = fake::current;
        return fake::kSuccess;
      },
      false);
}
FAKE_EXPORT int FAKE(DeviceSynchronize)() {
  return fake::call("DeviceSynchronize", [](fake::State&, const flagos_hal_api& hal) {
    return fake::codeOf(hal.device->synchronize(fake::current));
  });
}
FAKE_EXPORT int FAKE(MemGetInfo)(size_t* free, size_t* total) {
  return fake::call("MemGetInfo", [&](fake::State&, const flagos_hal_api& hal) {
    uint64_t now = 0;
    uint64_t all_bytes = 0;
    const int code = fake::codeOf(hal.device->memory_info(fake::current, &now, &all_bytes));
    *free = now;
    *total = all_bytes;
    return code;
  });
}
FAKE_EXPORT int FAKE(DeviceGetPCIBusId)(char* text, int size, int device) {
  return fake::call(
      "DeviceGetPCIBusId",
      [&](fake::State& all, const flagos_hal_api&) {
        if (!fake::validDevice(all, device)) return fake::kInvalidDevice;
        std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", device + 1);
        return fake::kSuccess;
      },
      false);
}

FAKE_EXPORT int FAKE(Malloc)(void** pointer, size_t size) {
  return fake::call("Malloc", [&](fake::State& all, const flagos_hal_api& hal) {
    if (pointer == nullptr || size == 0) return fake::kInvalidValue;  // strict: CUDA gives null for 0
    const int code = fake::codeOf(hal.memory->allocate(fake::current, size, pointer));
    if (code != 0) return code;
    std::lock_guard<std::mutex> lock(all.mutex);
    all.memory[reinterpret_cast<uintptr_t>(*pointer)] = {size, fake::current};
    return fake::kSuccess;
  });
}
FAKE_EXPORT int FAKE(Free)(void* pointer) {
  return fake::call("Free", [&](fake::State& all, const flagos_hal_api& hal) {
    int device = -1;
    {
      std::lock_guard<std::mutex> lock(all.mutex);
      const auto it = all.memory.find(reinterpret_cast<uintptr_t>(pointer));
      if (it == all.memory.end() || it->second.device < 0) return fake::kInvalidValue;
      device = it->second.device;
      all.memory.erase(it);
    }
    hal.device->synchronize(device);
    return fake::codeOf(hal.memory->release(device, pointer));
  });
}
FAKE_EXPORT int FAKE(Memcpy)(void* destination, const void* source, size_t size, int kind) {
  return fake::onStream(
      "Memcpy", nullptr, [&](fake::State& all, const flagos_hal_api& hal, flagos_hal_stream* stream) {
        if (kind == 0) {
          const int wrong = fake::checkKind(all, destination, source, size, kind);
          if (wrong == 0) std::memcpy(destination, source, size);
          return wrong;
        }
        const int code = fake::queueCopy(all, hal, stream, destination, source, size, kind);
        return code != 0 || kind != 2 ? code : fake::codeOf(hal.stream->synchronize(stream));
      });
}
FAKE_EXPORT int FAKE(MemcpyAsync)(void* destination, const void* source, size_t size, int kind,
                                  void* handle) {
  return fake::onStream("MemcpyAsync", handle,
                        [&](fake::State& all, const flagos_hal_api& hal, flagos_hal_stream* stream) {
                          return fake::queueCopy(all, hal, stream, destination, source, size, kind);
                        });
}
FAKE_EXPORT int FAKE(MemsetAsync)(void* destination, int value, size_t size, void* handle) {
  return fake::onStream("MemsetAsync", handle,
                        [&](fake::State& all, const flagos_hal_api& hal, flagos_hal_stream* stream) {
                          if (!fake::isDevice(all, destination, size)) return fake::kInvalidValue;
                          return fake::codeOf(hal.memory->fill_async(stream, destination, value & 255, size));
                        });
}
FAKE_EXPORT int FAKE(Memset)(void* destination, int value, size_t size) {
  return fake::onStream("Memset", nullptr,
                        [&](fake::State& all, const flagos_hal_api& hal, flagos_hal_stream* stream) {
                          if (!fake::isDevice(all, destination, size)) return fake::kInvalidValue;
                          return fake::codeOf(hal.memory->fill_async(stream, destination, value & 255, size));
                        });
}
FAKE_EXPORT int FAKE(PointerGetAttributes)(void* attributes, const void* pointer) {
  return fake::call("PointerGetAttributes", [&](fake::State& all, const flagos_hal_api&) {
    struct {
      int type, device;
      const void *device_pointer, *host_pointer;
    } answer = {0, -1, nullptr, nullptr};
    std::lock_guard<std::mutex> lock(all.mutex);
    const fake::Allocation* found = fake::holding(all, pointer, 1);
    if (found != nullptr) {
      answer.type = found->device < 0 ? 1 : 2;
      answer.device = found->device < 0 ? 0 : found->device;
    } else {
      auto it = all.registered.upper_bound(reinterpret_cast<uintptr_t>(pointer));
      if (it != all.registered.begin() &&
          reinterpret_cast<uintptr_t>(pointer) < std::prev(it)->first + std::prev(it)->second)
        answer.type = 1;
    }
    std::memcpy(attributes, &answer, sizeof(answer));
    return fake::kSuccess;
  });
}

FAKE_EXPORT int FAKE(HostAlloc)(void** pointer, size_t size, unsigned flags) {
  return fake::call("HostAlloc", [&](fake::State& all, const flagos_hal_api& hal) {
    if (pointer == nullptr || size == 0 || (flags & ~7u) != 0) return fake::kInvalidValue;
    const int code = fake::codeOf(hal.host->allocate(size, pointer));
    if (code != 0) return code;
    std::lock_guard<std::mutex> lock(all.mutex);
    all.memory[reinterpret_cast<uintptr_t>(*pointer)] = {size, -1};
    return fake::kSuccess;
  });
}
FAKE_EXPORT int FAKE(FreeHost)(void* pointer) {
  return fake::call("FreeHost", [&](fake::State& all, const flagos_hal_api& hal) {
    {
      std::lock_guard<std::mutex> lock(all.mutex);
      const auto it = all.memory.find(reinterpret_cast<uintptr_t>(pointer));
      if (it == all.memory.end() || it->second.device >= 0) return fake::kInvalidValue;
      all.memory.erase(it);
    }
    for (int device = 0; device < all.devices; ++device) hal.device->synchronize(device);
    return fake::codeOf(hal.host->release(pointer));
  });
}
FAKE_EXPORT int FAKE(HostRegister)(void* pointer, size_t size, unsigned flags) {
  return fake::call("HostRegister", [&](fake::State& all, const flagos_hal_api&) {
    if (pointer == nullptr || size == 0 || (flags & ~7u) != 0) return fake::kInvalidValue;
    std::lock_guard<std::mutex> lock(all.mutex);
    return all.registered.emplace(reinterpret_cast<uintptr_t>(pointer), size).second ? fake::kSuccess
                                                                                     : fake::kRegistered;
  });
}
FAKE_EXPORT int FAKE(HostUnregister)(void* pointer) {
  return fake::call("HostUnregister", [&](fake::State& all, const flagos_hal_api&) {
    std::lock_guard<std::mutex> lock(all.mutex);
    return all.registered.erase(reinterpret_cast<uintptr_t>(pointer)) != 0 ? fake::kSuccess
                                                                           : fake::kNotRegistered;
  });
}

FAKE_EXPORT int FAKE(DeviceCanAccessPeer)(int* yes, int device, int peer) {
  return fake::call("DeviceCanAccessPeer", [&](fake::State& all, const flagos_hal_api&) {
    if (!fake::validDevice(all, device) || !fake::validDevice(all, peer)) return fake::kInvalidDevice;
    *yes = device != peer;
    return fake::kSuccess;
  });
}
FAKE_EXPORT int FAKE(DeviceEnablePeerAccess)(int peer, unsigned flags) {
  return fake::call("DeviceEnablePeerAccess", [&](fake::State& all, const flagos_hal_api&) {
    if (flags != 0) return fake::kInvalidValue;
    if (!fake::validDevice(all, peer) || peer == fake::current) return fake::kInvalidDevice;
    std::lock_guard<std::mutex> lock(all.mutex);
    return all.peers.emplace(fake::current, peer).second ? fake::kSuccess : fake::kPeerEnabled;
  });
}
FAKE_EXPORT int FAKE(DeviceDisablePeerAccess)(int peer) {
  return fake::call("DeviceDisablePeerAccess", [&](fake::State& all, const flagos_hal_api&) {
    std::lock_guard<std::mutex> lock(all.mutex);
    return all.peers.erase({fake::current, peer}) != 0 ? fake::kSuccess : fake::kPeerNotEnabled;
  });
}
FAKE_EXPORT int FAKE(MemcpyPeerAsync)(void* destination, int destination_device, const void* source,
                                      int source_device, size_t size, void* handle) {
  return fake::onStream(
      "MemcpyPeerAsync", handle, [&](fake::State& all, const flagos_hal_api& hal, flagos_hal_stream* stream) {
        if (!fake::isDevice(all, destination, size) || !fake::isDevice(all, source, size))
          return fake::kInvalidValue;
        return fake::codeOf(
            hal.peer->copy_async(stream, destination_device, destination, source_device, source, size));
      });
}

#include "tests/fake_sdk/cuda_shaped_queues.hpp"
