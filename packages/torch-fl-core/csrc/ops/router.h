// Which source serves an operator on a backend: one look-up per call.
//
// The routes of a backend are one table, indexed by dense operator ids; a look-up is one atomic load of the
// table and an index. A change publishes another table for all threads. Tables are recycled: a reader that
// still holds an older one reads an entry of that table or of a newer one, each complete in itself, so that
// neither a lock nor a count of readers is needed and no memory is lost however often routes change.
#pragma once

#include <c10/macros/Macros.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "csrc/api.h"
#include "csrc/ops/conditions.h"
#include "csrc/ops/sources.h"
#include "csrc/runtime/devices.h"

namespace flagos::ops {

struct OpRecord;  // op_record.h

// What a table says about one operator. Four bytes: the source, and the number of a candidate list.
struct Route {
  uint32_t bits = 0;
  // The source, where it serves every call, with nothing to test or to watch.
  bool direct() const noexcept { return bits <= 0xff; }
  Source source() const noexcept { return static_cast<Source>(bits & 0xff); }
  uint32_t list() const noexcept { return (bits & 0x7fffffff) >> 8; }  // 0: no list, the source alone
  bool watched() const noexcept { return (bits & 0x80000000) != 0; }   // timing or checking is on
};

enum class OnError : uint8_t { Raise, Next };

struct Candidate {
  Source source = Source::Cpu;
  OnError on_error = OnError::Raise;
  ConditionPtr when;  // null: always
};
using Candidates = std::vector<Candidate>;

using RouteTable = std::array<std::atomic<uint32_t>, kMaxOps>;

namespace detail {
FLAGOS_API extern std::array<std::atomic<const RouteTable*>, kMaxBackends> tables;
// How many overlays there are in the process, of whatever thread; one plain load tells most programs that
// there is none.
FLAGOS_API extern std::atomic<int> overlays;
// Like route(), where some thread has routes of its own.
FLAGOS_API Route overlaidRoute(OpId op, const DeviceEntry& device) noexcept;
}  // namespace detail

// The route of `op` on `device` now. Wait-free.
inline Route route(OpId op, const DeviceEntry& device) noexcept {
  if (C10_UNLIKELY(detail::overlays.load(std::memory_order_relaxed) != 0))
    return detail::overlaidRoute(op, device);
  return {(*detail::tables[device.slot].load(std::memory_order_acquire))[op].load(std::memory_order_relaxed)};
}

// The candidates of a list, in order; the last is `cpu`. Valid for the life of the process.
FLAGOS_API const Candidates& candidatesOf(Route route) noexcept;

// --- changing routes; Python resolves layers of policy, and hands over what results of them -----------------

using Routes = std::map<std::string, Candidates>;  // by operator

// The backends with devices, in order of their slots.
FLAGOS_API std::vector<std::string> routedBackends();

// Sources with an implementation of `op` on the backend, in the order of Source.
FLAGOS_API std::vector<Source> capability(const std::string& op, const std::string& backend);

// Replaces the table of a backend: `routes` for the operators named, `order` for all others. Candidates
// without an implementation are left out. Returns the table's number: 1, 2, … in order of publication.
// Throws for unknown backends and operators.
FLAGOS_API uint64_t publish(const std::string& backend, const Routes& routes, const Candidates& order);

// Changes the routes of these operators only; an empty list gives the operator the order of `publish` again.
FLAGOS_API uint64_t update(const std::string& backend, const Routes& routes);

// Lays routes over all others for this thread, and takes the last ones away again. Operators that are not
// named keep their route, and the overlay below. Autograd's workers follow for the backward passes that this
// thread starts.
FLAGOS_API void pushOverlay(const std::map<std::string, Routes>& routes_by_backend);
FLAGOS_API void popOverlay();

// While something is watched, every call takes the long way, on which it is timed and compared
// (routed_kernel.cpp).
enum class Watch : unsigned { Timing = 1, Check = 2 };
FLAGOS_API void watch(Watch what, bool on);

// Makes the tables of the backends that have devices now. Called once at activation.
void makeTables();

// Works out the routes of an operator that was first met after the tables were made. Cheap when done.
void joinRoutes(const OpRecord& record);

// Says that a source has got, or lost, implementations: tables are worked out again.
FLAGOS_API void capabilitiesChanged();

}  // namespace flagos::ops
