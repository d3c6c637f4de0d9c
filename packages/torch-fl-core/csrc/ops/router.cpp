#include "csrc/ops/router.h"

#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "csrc/ops/op_record.h"
#include "csrc/ops/source_kernels.h"
#include "csrc/runtime/companion.h"

namespace flagos::ops {

namespace {

constexpr uint32_t kWatchedBit = 0x80000000;
constexpr size_t kTablesPerBackend = 4;

// What a table holds before the devices are there.
const RouteTable* firstTable() {
  auto* table = new RouteTable();
  for (auto& entry : *table) entry.store(static_cast<uint32_t>(Source::Cpu), std::memory_order_relaxed);
  return table;
}

struct BackendRoutes {
  const DeviceEntry* device = nullptr;  // the first of the backend
  Routes named;
  Candidates order;
  std::array<std::unique_ptr<RouteTable>, kTablesPerBackend> tables;
  size_t current = 0;
  uint64_t version = 0;
};

struct Router {
  std::mutex mutex;  // guards all that follows
  std::vector<BackendRoutes> backends;
  unsigned watched = 0;  // bits of Watch
  std::unordered_map<std::string, uint32_t> list_numbers;
};

Router& router() {
  static auto* instance = new Router;  // never destroyed: see sources.cpp
  return *instance;
}

// Candidate lists by number, written under the router's mutex before their number is published. In chunks,
// which never move.
constexpr size_t kListsPerChunk = 1024;
std::array<std::atomic<std::array<Candidates, kListsPerChunk>*>, 512> list_chunks{};

std::atomic<bool> watched_now{false};

constexpr uint32_t kNotOverlaid = 0xffffffff;

// PyTorch hands its thread-local debug information on to the threads that work for this one. A kind is the
// address of a name; up to 2.12 it was a number, told apart by value.
constexpr std::string_view kOverlayName = "FLAGOS_ROUTES";

template <typename Kind>
Kind overlayKind() {
  if constexpr (std::is_enum_v<Kind>) {
    return static_cast<Kind>(0xf1);
  } else {
    return Kind(&kOverlayName);
  }
}

struct Overlay final : c10::DebugInfoBase {
  Overlay() { detail::overlays.fetch_add(1, std::memory_order_relaxed); }
  ~Overlay() override { detail::overlays.fetch_sub(1, std::memory_order_relaxed); }
  std::array<std::unique_ptr<RouteTable>, kMaxBackends> tables;
};

// This thread's overlays, the last on top; each guard takes its own away.
std::vector<std::unique_ptr<c10::DebugInfoGuard>>& overlayGuards() {
  thread_local std::vector<std::unique_ptr<c10::DebugInfoGuard>> guards;
  return guards;
}

std::string spellingOf(const Candidates& candidates) {
  std::string text;
  for (const Candidate& candidate : candidates) {
    text += sourceName(candidate.source);
    text += candidate.on_error == OnError::Next ? "!" : "";
    text += candidate.when ? "{" + candidate.when->text + "}" : "";
    text += ';';
  }
  return text;
}

uint32_t listNumber(Router& state, Candidates candidates) {
  std::string spelling = spellingOf(candidates);
  const auto known = state.list_numbers.find(spelling);
  if (known != state.list_numbers.end()) return known->second;
  const auto number = static_cast<uint32_t>(state.list_numbers.size() + 1);
  TORCH_CHECK(number < list_chunks.size() * kListsPerChunk,
              "flagos: more different lists of candidates than core can number were given for routes");
  auto& chunk = list_chunks[number / kListsPerChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr)
    chunk.store(new std::array<Candidates, kListsPerChunk>(), std::memory_order_release);
  (*chunk.load(std::memory_order_relaxed))[number % kListsPerChunk] = std::move(candidates);
  state.list_numbers.emplace(std::move(spelling), number);
  return number;
}

bool has(const OpRecord& record, Source source, const DeviceEntry& device) {
  if (source == Source::Cpu) return hasHostKernel(record);
  if (source == Source::Boxed)
    return device.companion != nullptr && hasKernel(record, device.companion->keys);
  return sourceKernel(source, record.id, device.slot) != nullptr;
}

bool neverDeclines(Source source) { return source == Source::Boxed || source == Source::Cpu; }

// What is left of the candidates on this backend. Ends with one that serves every call.
Candidates present(const OpRecord& record, const DeviceEntry& device, const Candidates& candidates) {
  Candidates left;
  for (const Candidate& candidate : candidates) {
    if (!has(record, candidate.source, device)) continue;
    left.push_back(candidate);
    if (candidate.when == nullptr && neverDeclines(candidate.source) && candidate.on_error == OnError::Raise)
      return left;
  }
  left.push_back({Source::Cpu, OnError::Raise, nullptr});
  return left;
}

uint32_t entryOf(Router& state, const OpRecord& record, const DeviceEntry& device,
                 const Candidates& candidates) {
  Candidates left = present(record, device, candidates);
  const auto source = static_cast<uint32_t>(left.front().source);
  const bool alone = left.size() == 1;
  return alone ? source : source | listNumber(state, std::move(left)) << 8;
}

const Candidates& candidatesFor(const BackendRoutes& backend, const std::string& name) {
  const auto named = backend.named.find(name);
  return named == backend.named.end() ? backend.order : named->second;
}

BackendRoutes& backendNamed(Router& state, const std::string& name) {
  std::string known;
  for (BackendRoutes& backend : state.backends) {
    const std::string& candidate = backend.device->backend->request.name;
    if (candidate == name) return backend;
    known += (known.empty() ? "'" : "', '") + candidate;
  }
  TORCH_CHECK_VALUE(false, "flagos: there is no backend '", name, "' with devices in this process; there is ",
                    known.empty() ? "none" : known + "'");
}

const OpRecord& recordNamed(const std::string& name) {
  const std::optional<OpId> id = findOpId(name);
  const OpRecord* record = id.has_value() ? recordOf(*id) : nullptr;
  TORCH_CHECK_VALUE(record != nullptr, "flagos: no operator '", name, "' is routed");
  return *record;
}

// Fills the least recent table of the ring and makes it the current one.
template <typename Function>
uint64_t publishTable(Router& state, BackendRoutes& backend, Function fill) {
  const size_t next = (backend.current + 1) % kTablesPerBackend;
  const RouteTable& before = *detail::tables[backend.device->slot].load(std::memory_order_relaxed);
  auto& table = backend.tables[next];
  if (table == nullptr) table = std::make_unique<RouteTable>();
  for (OpId op = 0; op < kMaxOps; ++op)
    (*table)[op].store(before[op].load(std::memory_order_relaxed), std::memory_order_relaxed);
  fill(*table);
  const uint32_t watched = state.watched != 0 ? kWatchedBit : 0;
  for (auto& entry : *table) {
    const uint32_t bits = entry.load(std::memory_order_relaxed);
    entry.store((bits & ~kWatchedBit) | watched, std::memory_order_relaxed);
  }
  backend.current = next;
  detail::tables[backend.device->slot].store(table.get(), std::memory_order_release);
  return ++backend.version;
}

uint64_t publishAll(Router& state, BackendRoutes& backend) {
  return publishTable(state, backend, [&](RouteTable& table) {
    for (OpId op = 0; op < opCount(); ++op) {
      const OpRecord* record = recordOf(op);
      if (record == nullptr) continue;
      table[op].store(entryOf(state, *record, *backend.device, candidatesFor(backend, opName(op))),
                      std::memory_order_relaxed);
    }
  });
}

const Candidates& coreOrder() {
  static const auto* order = new Candidates{{Source::Native, OnError::Raise, nullptr},
                                            {Source::Boxed, OnError::Raise, nullptr},
                                            {Source::Cpu, OnError::Raise, nullptr}};
  return *order;
}

}  // namespace

namespace detail {

std::array<std::atomic<const RouteTable*>, kMaxBackends> tables{};
std::atomic<int> overlays{0};

namespace {
[[maybe_unused]] const bool first_tables_made = [] {
  const RouteTable* table = firstTable();
  for (auto& slot : tables) slot.store(table, std::memory_order_relaxed);
  return true;
}();
}  // namespace

Route overlaidRoute(OpId op, const DeviceEntry& device) noexcept {
  const auto* overlay =
      static_cast<const Overlay*>(c10::ThreadLocalDebugInfo::get(overlayKind<c10::DebugInfoKind>()));
  const RouteTable* table = overlay == nullptr ? nullptr : overlay->tables[device.slot].get();
  const uint32_t bits = table == nullptr ? kNotOverlaid : (*table)[op].load(std::memory_order_relaxed);
  if (bits != kNotOverlaid) return {bits | (watched_now.load(std::memory_order_relaxed) ? kWatchedBit : 0)};
  return {(*tables[device.slot].load(std::memory_order_acquire))[op].load(std::memory_order_relaxed)};
}

}  // namespace detail

const Candidates& candidatesOf(Route route) noexcept {
  const uint32_t number = route.list();
  if (number != 0) {
    return (*list_chunks[number / kListsPerChunk].load(std::memory_order_acquire))[number % kListsPerChunk];
  }
  static const auto* alone = [] {
    auto* lists = new std::array<Candidates, kSourceCount>();
    for (size_t i = 0; i < kSourceCount; ++i)
      (*lists)[i] = {{static_cast<Source>(i), OnError::Raise, nullptr}};
    return lists;
  }();
  return (*alone)[static_cast<size_t>(route.source())];
}

std::vector<std::string> routedBackends() {
  Router& state = router();
  const std::lock_guard<std::mutex> lock(state.mutex);
  std::vector<std::string> names;
  for (const BackendRoutes& backend : state.backends) names.push_back(backend.device->backend->request.name);
  return names;
}

std::vector<Source> capability(const std::string& op, const std::string& backend) {
  Router& state = router();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const DeviceEntry& device = *backendNamed(state, backend).device;
  const OpRecord& record = recordNamed(op);
  std::vector<Source> sources;
  for (size_t i = 0; i < kSourceCount; ++i) {
    if (has(record, static_cast<Source>(i), device)) sources.push_back(static_cast<Source>(i));
  }
  return sources;
}

uint64_t publish(const std::string& backend, const Routes& routes, const Candidates& order) {
  Router& state = router();
  const std::lock_guard<std::mutex> lock(state.mutex);
  BackendRoutes& target = backendNamed(state, backend);
  for (const auto& [name, candidates] : routes) recordNamed(name);
  target.named = routes;
  target.order = order;
  return publishAll(state, target);
}

uint64_t update(const std::string& backend, const Routes& routes) {
  Router& state = router();
  const std::lock_guard<std::mutex> lock(state.mutex);
  BackendRoutes& target = backendNamed(state, backend);
  for (const auto& [name, candidates] : routes) recordNamed(name);
  for (const auto& [name, candidates] : routes) {
    if (candidates.empty()) {
      target.named.erase(name);
    } else {
      target.named[name] = candidates;
    }
  }
  return publishTable(state, target, [&](RouteTable& table) {
    for (const auto& [name, candidates] : routes) {
      const OpRecord& record = recordNamed(name);
      table[record.id].store(entryOf(state, record, *target.device, candidatesFor(target, name)),
                             std::memory_order_relaxed);
    }
  });
}

void pushOverlay(const std::map<std::string, Routes>& routes_by_backend) {
  Router& state = router();
  const std::lock_guard<std::mutex> lock(state.mutex);
  auto fresh = std::make_shared<Overlay>();
  const auto* below =
      static_cast<const Overlay*>(c10::ThreadLocalDebugInfo::get(overlayKind<c10::DebugInfoKind>()));
  for (size_t slot = 0; below != nullptr && slot < fresh->tables.size(); ++slot) {
    if (below->tables[slot] == nullptr) continue;
    fresh->tables[slot] = std::make_unique<RouteTable>();
    for (OpId op = 0; op < kMaxOps; ++op)
      (*fresh->tables[slot])[op].store((*below->tables[slot])[op].load(std::memory_order_relaxed),
                                       std::memory_order_relaxed);
  }
  for (const auto& [name, routes] : routes_by_backend) {
    const DeviceEntry& device = *backendNamed(state, name).device;
    auto& table = fresh->tables[device.slot];
    if (table == nullptr) {
      table = std::make_unique<RouteTable>();
      for (auto& entry : *table) entry.store(kNotOverlaid, std::memory_order_relaxed);
    }
    for (const auto& [op, candidates] : routes) {
      const OpRecord& record = recordNamed(op);
      (*table)[record.id].store(entryOf(state, record, device, candidates), std::memory_order_relaxed);
    }
  }
  overlayGuards().push_back(
      std::make_unique<c10::DebugInfoGuard>(overlayKind<c10::DebugInfoKind>(), std::move(fresh)));
}

void popOverlay() {
  TORCH_CHECK(!overlayGuards().empty(), "flagos: this thread has no routes of its own to take away");
  overlayGuards().pop_back();
}

void watch(Watch what, bool on) {
  Router& state = router();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const unsigned before = state.watched;
  state.watched = on ? before | static_cast<unsigned>(what) : before & ~static_cast<unsigned>(what);
  if ((before != 0) == (state.watched != 0)) return;
  watched_now.store(state.watched != 0, std::memory_order_relaxed);
  for (BackendRoutes& backend : state.backends) publishTable(state, backend, [](RouteTable&) {});
}

void makeTables() {
  Router& state = router();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const int devices = flagos::detail::device_table_size.load(std::memory_order_acquire);
  for (int i = 0; i < devices; ++i) {
    const DeviceEntry& device = flagos::detail::device_table[i];
    if (device.local != 0) continue;
    BackendRoutes backend;
    backend.device = &device;
    backend.order = coreOrder();
    state.backends.push_back(std::move(backend));
  }
  for (BackendRoutes& backend : state.backends) publishAll(state, backend);
}

void joinRoutes(const OpRecord& record) {
  static auto* joined = new std::array<std::atomic<bool>, kMaxOps>();
  if (C10_LIKELY((*joined)[record.id].load(std::memory_order_acquire))) return;
  Router& state = router();
  const std::lock_guard<std::mutex> lock(state.mutex);
  for (BackendRoutes& backend : state.backends) {
    publishTable(state, backend, [&](RouteTable& table) {
      table[record.id].store(
          entryOf(state, record, *backend.device, candidatesFor(backend, opName(record.id))),
          std::memory_order_relaxed);
    });
  }
  (*joined)[record.id].store(true, std::memory_order_release);
}

void capabilitiesChanged() {
  Router& state = router();
  const std::lock_guard<std::mutex> lock(state.mutex);
  for (BackendRoutes& backend : state.backends) publishAll(state, backend);
}

}  // namespace flagos::ops
