#include "csrc/runtime/devices.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <new>
#include <sstream>
#include <utility>

#include "csrc/runtime/companion.h"
#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/event.h"
#include "csrc/runtime/fork.h"
#include "csrc/runtime/generator.h"
#include "csrc/runtime/host_allocator.h"
#include "csrc/runtime/settings.h"
#include "csrc/runtime/stream_table.h"
#include "csrc/runtime/thread_device.h"

namespace flagos {
namespace detail {

DeviceEntry device_table[kMaxDevices];
std::atomic<int> device_table_size{0};

}  // namespace detail

namespace {

// All but the atomics is guarded by the mutex. Once the table is published, records do not change any more:
// entries point into them.
struct Runtime {
  std::mutex mutex;
  std::vector<BackendRecord> records;
  std::vector<char> initialised;  // per record: init succeeded and shutdown was not called
  bool real_opened = false;       // every backend that is not emulated was tried once
  int possible_count = -1;        // answer of possibleDeviceCount; −1 before it was asked
  std::atomic<bool> emulated_allowed{false};
  std::atomic<bool> shut_down{false};
  std::vector<void (*)()> on_activation;
  std::vector<std::function<void()>> on_opened;  // emptied by the one thread that calls them
  std::atomic<int> known_count{0};               // the table's size, kept over a fork and the shutdown
};

// Leaked: tensors and streams are destroyed after any static destructor of ours would have run.
Runtime& runtime() {
  static auto* instance = new Runtime;
  return *instance;
}

hal::OpenOptions openOptions(const BackendRequest& request) {
  hal::OpenOptions options;
  options.private_copy = request.private_copy;
  options.validate = settingIsOn("FLAGOS_HAL_VALIDATE");
  const std::string trace = setting("FLAGOS_HAL_TRACE", "0");
  options.trace = trace != "0";
  if (options.trace && trace != "1") options.trace_path = trace;
  return options;
}

int64_t capability(const hal::Tables& tables, flagos_hal_capability which) {
  int64_t value = 0;
  return tables.system.capability(which, &value) == FLAGOS_HAL_STATUS_OK ? value : 0;
}

// Takes over what the library says of itself. Returns what is wrong with it; empty if nothing.
std::string readCapabilities(BackendRecord& record) {
  const hal::Tables& tables = record.library->tables();
  record.host_access = capability(tables, FLAGOS_HAL_CAP_HOST_ACCESS);
  record.alignment = capability(tables, FLAGOS_HAL_CAP_ALIGNMENT);
  record.async_streams = capability(tables, FLAGOS_HAL_CAP_ASYNC_STREAMS) != 0;
  if (record.alignment == 0) record.alignment = 64;  // not told: the least that the header promises
  std::ostringstream fault;
  if (record.alignment < 64 || (record.alignment & (record.alignment - 1)) != 0) {
    fault << "it says that its memory is aligned to " << record.alignment
          << " bytes; a power of two, 64 or more, is allowed";
  } else if (record.host_access < FLAGOS_HAL_HOST_ACCESS_NONE ||
             record.host_access > FLAGOS_HAL_HOST_ACCESS_MANAGED) {
    fault << "it answers " << record.host_access << " for HOST_ACCESS; 0, 1 and 2 are defined";
  }
  return fault.str();
}

void fail(BackendRecord& record, BackendState state, std::string reason) {
  record.state = state;
  record.reason = std::move(reason);
  record.device_count = 0;
}

// Opens the library, unless an earlier attempt did. False with state and reason set.
bool openLibrary(BackendRecord& record) {
  if (record.library) return true;
  try {
    record.library =
        hal::Library::open(record.request.name, record.request.path, openOptions(record.request));
    return true;
  } catch (const hal::LoadError& error) {
    const bool refused = error.kind() == hal::LoadError::Kind::AbiRefused;
    fail(record, refused ? BackendState::AbiRefused : BackendState::Failed, error.what());
  } catch (const std::exception&
               error) {  // out of memory, or a fault of the loader: one backend must not stop the others
    fail(record, BackendState::Failed, error.what());
  }
  return false;
}

void chooseCompanion(BackendRecord& record) {
  if (record.request.companion.empty()) return;
  if (setting("FLAGOS_COMPANION") == "off") {
    record.companion_reason = "switched off by FLAGOS_COMPANION";
    return;
  }
  record.companion = findCompanion(record.request.companion, record.device_count, record.companion_reason);
}

void shutDownBackend(Runtime& state, size_t which) {
  state.records[which].library->tables().system.shutdown();
  state.initialised[which] = false;
  detail::noteInitialised(-1);
}

int selectedCount(const Runtime& state) {
  int count = 0;
  for (const BackendRecord& record : state.records) count += record.state == BackendState::Selected ? 1 : 0;
  return count;
}

// Opens and initialises one backend, for at most `room` devices. Never throws; the record says how it went.
void openBackend(Runtime& state, size_t which, int room) {
  BackendRecord& record = state.records[which];
  if (!openLibrary(record)) return;
  const hal::Tables& tables = record.library->tables();
  const std::string& name = record.request.name;
  if (!state.initialised[which]) {
    const flagos_hal_status status = tables.system.init();
    if (status != FLAGOS_HAL_STATUS_OK) {
      const bool missing = status == FLAGOS_HAL_STATUS_UNAVAILABLE;
      fail(record, missing ? BackendState::SdkMissing : BackendState::Failed,
           hal::describeFailure(tables, name, status));
      return;
    }
    state.initialised[which] = true;
    detail::noteInitialised(1);
  }
  int32_t count = 0;
  const flagos_hal_status status = tables.device.count(&count);
  std::string fault;
  if (status == FLAGOS_HAL_STATUS_OK) fault = readCapabilities(record);
  if (status != FLAGOS_HAL_STATUS_OK) {
    fail(record, BackendState::Failed, hal::describeFailure(tables, name, status));
  } else if (!fault.empty()) {
    fail(record, BackendState::Failed, "the library at " + record.request.path + " is faulty: " + fault);
  } else if (count < 0 || count > room) {
    std::ostringstream reason;
    reason << "it reports " << count << " devices; there is room for 0 to " << room << " (" << kMaxDevices
           << " over all backends)";
    fail(record, BackendState::Failed, reason.str());
  } else if (selectedCount(state) == kMaxBackends) {
    fail(record, BackendState::Failed,
         "there is room for " + std::to_string(kMaxBackends) + " backends in one process");
  } else if (count == 0) {
    fail(record, BackendState::NoDevice, "the runtime is there and reports no device");
  } else {
    record.state = BackendState::Selected;
    record.reason.clear();
    record.device_count = count;
    chooseCompanion(record);
    return;
  }
  shutDownBackend(
      state, which);  // a backend that is not used holds nothing, and does not stand in the way of a fork
}

// How many devices a backend would bring. Asked of a copy of the library with globals of its own: the library
// itself then remains one that was never initialised, which a child of a fork may still initialise.
int countInCopy(const BackendRequest& request) {
  hal::OpenOptions options;
  options.private_copy = true;
  int32_t count = 0;
  try {
    const auto copy = hal::Library::open(request.name, request.path, options);
    const hal::Tables& tables = copy->tables();
    if (tables.system.init() != FLAGOS_HAL_STATUS_OK) return 0;
    if (tables.device.count(&count) != FLAGOS_HAL_STATUS_OK) count = 0;
    tables.system.shutdown();
  } catch (const hal::LoadError&) {  // activation will tell
    return 0;
  }
  return std::clamp(count, 0, kMaxDevices);
}

int openAll(Runtime& state, bool emulated, int room) {
  int total = 0;
  for (size_t i = 0; i < state.records.size(); ++i) {
    if (state.records[i].request.emulated != emulated || state.records[i].state == BackendState::Skipped)
      continue;
    if (state.records[i].state != BackendState::Selected) openBackend(state, i, room - total);
    total += state.records[i].device_count;
  }
  return total;
}

// Makes the devices of all selected backends visible. The only writer of the table; runs once.
void publish(Runtime& state) {
  int next = 0;
  uint8_t slot = 0;
  for (BackendRecord& record : state.records) {
    if (record.state != BackendState::Selected) continue;
    record.first_device = next;
    for (int32_t local = 0; local < record.device_count; ++local, ++next) {
      DeviceEntry& entry = detail::device_table[next];
      entry.hal = &record.library->tables();
      entry.backend = &record;
      entry.local = local;
      entry.index = static_cast<c10::DeviceIndex>(next);
      entry.slot = slot;
      entry.companion = record.companion;
      entry.host_accessible =
          record.companion == nullptr && record.host_access == FLAGOS_HAL_HOST_ACCESS_COHERENT;
    }
    ++slot;
    detail::followCompanion(record);
  }
  state.known_count.store(next, std::memory_order_relaxed);
  detail::device_table_size.store(next, std::memory_order_release);
  seedCompanions();
  for (auto* callback : state.on_activation) callback();
}

// Calls what waits for the devices. The lock is not held: a callback may use the runtime, and take locks of its
// own such as Python's.
void runOpened(Runtime& state) {
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard<std::mutex> lock(state.mutex);
    callbacks.swap(state.on_opened);
  }
  for (const auto& callback : callbacks) callback();
}

// Opens what may be opened and publishes the table if that gave a device. The number of devices. Lock held.
int openDevices(Runtime& state, bool emulated_too, bool retry) {
  const int size = detail::device_table_size.load(std::memory_order_relaxed);
  if (size > 0) return size;
  const detail::OpeningMark mark;
  int total = 0;
  if (!state.real_opened || retry) {
    total = openAll(state, false, kMaxDevices);
    state.real_opened = true;
  }
  if (total == 0 && emulated_too) total = openAll(state, true, kMaxDevices);
  if (total > 0) publish(state);
  return total;
}

// Why an emulated backend is not in use, for the reports.
std::string waitingReason(const BackendRecord& record) {
  if (!record.request.emulated) return "not opened yet";
  if (detail::device_table_size.load(std::memory_order_acquire) > 0) {
    return "emulated: joins only where no other backend has a device; name it in FLAGOS_BACKENDS to add it";
  }
  return "emulated: joins with the first flagos tensor or `import torch_fl`, where no other backend has a "
         "device";
}

std::string describeRecords(const std::vector<BackendRecord>& records) {
  std::ostringstream text;
  for (const BackendRecord& record : records) {
    if (record.state == BackendState::Skipped) {
      text << "\n  " << record.request.name << ": " << record.reason;
      continue;
    }
    text << "\n  " << record.request.name << ": " << backendStateName(record.state);
    const std::string reason = record.state == BackendState::Waiting ? waitingReason(record) : record.reason;
    if (!reason.empty()) text << ": " << reason;
  }
  return text.str();
}

}  // namespace

const char* backendStateName(BackendState state) noexcept {
  switch (state) {
    case BackendState::Waiting:
      return "waiting";
    case BackendState::Selected:
      return "selected";
    case BackendState::NoDevice:
      return "no device";
    case BackendState::SdkMissing:
      return "SDK missing";
    case BackendState::AbiRefused:
      return "ABI refused";
    case BackendState::Failed:
      return "failed";
    case BackendState::Skipped:
      return "skipped";
  }
  return "?";
}

void setBackendRequests(std::vector<BackendRequest> requests) {
  throwIfBadFork();
  Runtime& state = runtime();
  std::lock_guard<std::mutex> lock(state.mutex);
  TORCH_CHECK(!activated() && !state.shut_down.load(),
              "flagos: the list of backends was changed after the devices were opened. Choose backends "
              "(FLAGOS_BACKENDS) before ",
              "the first use of a flagos device.");
  for (size_t i = 0; i < requests.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      TORCH_CHECK(requests[i].name != requests[j].name, "flagos: backend '", requests[i].name,
                  "' is listed twice. A second ", "instance needs its own name: '", requests[i].name,
                  ":second'.");
    }
  }
  state.records.clear();
  for (BackendRequest& request : requests) {
    BackendRecord record;
    record.request = std::move(request);
    if (!record.request.skip.empty()) fail(record, BackendState::Skipped, record.request.skip);
    state.records.push_back(std::move(record));
  }
  state.initialised.assign(state.records.size(), 0);
  state.real_opened = false;
  state.possible_count = -1;
}

void allowEmulated() noexcept { runtime().emulated_allowed.store(true); }

void onActivation(void (*callback)()) {
  Runtime& state = runtime();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.on_activation.push_back(callback);
}

void onOpened(std::function<void()> callback) {
  Runtime& state = runtime();
  {
    std::lock_guard<std::mutex> lock(state.mutex);
    state.on_opened.push_back(std::move(callback));
  }
  if (activated()) runOpened(state);
}

namespace {

c10::DeviceIndex openOrThrow(Runtime& state) {
  std::lock_guard<std::mutex> lock(state.mutex);
  TORCH_CHECK(
      !state.shut_down.load(),
      "flagos: the runtime was shut down; the interpreter is exiting. Use flagos devices before that.");
  const int count = openDevices(state, true, true);
  TORCH_CHECK(count > 0, "flagos: no backend has a device. ",
              state.records.empty() ? "No backend was found at all: is torch-fl-core installed completely, "
                                      "and does FLAGOS_BACKENDS name one?"
                                    : "Tried:",
              describeRecords(state.records), "\nDetails: python -m torch_fl.doctor");
  return static_cast<c10::DeviceIndex>(count);
}

}  // namespace

c10::DeviceIndex activate() {
  throwIfBadFork();
  Runtime& state = runtime();
  const c10::DeviceIndex count = openOrThrow(state);
  runOpened(state);
  return count;
}

bool activated() noexcept { return detail::device_table_size.load(std::memory_order_acquire) > 0; }

c10::DeviceIndex deviceCount() noexcept {
  const int size = detail::device_table_size.load(std::memory_order_acquire);
  if (size > 0) return static_cast<c10::DeviceIndex>(size);
  Runtime& state = runtime();
  if (inBadFork()) return static_cast<c10::DeviceIndex>(state.known_count.load());
  if (state.shut_down.load()) return 0;
  int count = 0;
  try {
    {
      std::lock_guard<std::mutex> lock(state.mutex);
      count = openDevices(state, state.emulated_allowed.load(), false);
    }
    if (count > 0) runOpened(state);
  } catch (const std::exception& error) {  // a count must not throw
    TORCH_WARN("flagos: while the devices were opened: ", error.what());
  }
  return static_cast<c10::DeviceIndex>(count);
}

c10::DeviceIndex possibleDeviceCount() noexcept {
  if (const c10::DeviceIndex count = deviceCount()) return count;
  Runtime& state = runtime();
  if (inBadFork() || state.shut_down.load()) return 0;
  try {
    std::lock_guard<std::mutex> lock(state.mutex);
    if (state.possible_count >= 0) return static_cast<c10::DeviceIndex>(state.possible_count);
    int total = 0;
    for (const BackendRecord& record : state.records) {
      if (record.request.emulated && record.state != BackendState::Skipped)
        total += countInCopy(record.request);
    }
    state.possible_count = std::min(total, kMaxDevices);
    return static_cast<c10::DeviceIndex>(state.possible_count);
  } catch (const std::exception&) {  // as in deviceCount
    return 0;
  }
}

c10::DeviceIndex checkedIndex(int64_t index) {
  if (index < -1 || index >= kMaxDevices) {
    activate();  // the message names the devices that there are
    detail::badDeviceIndex(index);
  }
  return static_cast<c10::DeviceIndex>(index);
}

std::vector<BackendRecord> backendRecords() {
  if (inBadFork())
    return runtime().records;  // one thread, and the lock may be held by a thread of the parent
  std::lock_guard<std::mutex> lock(runtime().mutex);
  std::vector<BackendRecord> records = runtime().records;
  for (BackendRecord& record : records) {
    if (record.state == BackendState::Waiting) record.reason = waitingReason(record);
  }
  return records;
}

std::string describeBackends() { return describeRecords(backendRecords()); }

void shutdownRuntime() noexcept {
  Runtime& state = runtime();
  if (isShutDown()) return;
  if (inBadFork()) {
    state.shut_down.store(true);
    return;
  }
  const int size = detail::device_table_size.load(std::memory_order_acquire);
  for (int i = 0; i < size; ++i) {
    const DeviceEntry& entry = detail::device_table[i];
    entry.hal->device.synchronize(entry.local);  // a device that is lost has nothing to wait for
  }
  if (size > 0) {
    releaseAllHostMemory();
    releaseAllDeviceMemory();
  }
  std::lock_guard<std::mutex> lock(state.mutex);
  if (state.shut_down.exchange(true)) return;
  detail::device_table_size.store(0, std::memory_order_release);  // from here on every use throws
  destroyAllEvents();
  detail::destroyAllStreams();
  for (size_t i = 0; i < state.records.size(); ++i) {
    if (state.initialised[i]) shutDownBackend(state, i);
  }
}

bool isShutDown() noexcept { return runtime().shut_down.load(std::memory_order_acquire); }

namespace detail {

void renewLocksAfterFork() noexcept {
  new (&runtime().mutex) std::mutex;  // a thread that the child does not have may have held it
}

}  // namespace detail
}  // namespace flagos
