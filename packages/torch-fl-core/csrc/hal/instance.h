// The open libraries of this process. The HAL's functions carry no context argument, so each library gets a
// slot number, and the functions that core puts into its tables are templates over that number: through it
// they find their Instance.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <string>

#include "csrc/hal/library.h"
#include "csrc/hal/members.h"

namespace flagos::hal {

class Validator;
class Tracer;

class Instance final : public Library {
 public:
  Instance(int slot, std::string name, std::string path);
  ~Instance() override;

  const std::string& name() const noexcept override { return name_; }
  const std::string& path() const noexcept override { return path_; }
  uint32_t abiMajor() const noexcept override { return abi_major; }
  uint32_t abiMinor() const noexcept override { return abi_minor; }
  const Tables& tables() const noexcept override { return *outer; }
  uint64_t violations() const noexcept override;
  int slot() const noexcept { return slot_; }

  // What follows is written while the library is opened, before anybody else sees the instance.
  uint32_t abi_major = 0;
  uint32_t abi_minor = 0;
  flagos_hal_status (*library_last_error)(flagos_hal_error*) = nullptr;  // the library's own
  std::bitset<kMemberCount> absent;                                      // functions that the library lacks
  Tables plain = {};      // the library's functions, stubs for those it lacks
  Tables validated = {};  // filled with the layer only
  Tables traced = {};
  const Tables* outer = &plain;
  std::unique_ptr<Validator> validator;  // null without the layer, as the next
  std::unique_ptr<Tracer> tracer;

 private:
  const int slot_;
  const std::string name_;
  const std::string path_;
};

namespace detail {
extern Instance* instances[kMaxLibraries];  // each written once, before its tables are handed out
}

inline Instance& instanceAt(int slot) noexcept { return *detail::instances[slot]; }

// A failure that core found itself: a function that the library lacks, or a violation. It becomes this
// thread's last error of that library, until the library's next failure. `function` is a literal. Returns
// `status`.
__attribute__((format(printf, 4, 5))) flagos_hal_status failInCore(const Instance& instance,
                                                                   flagos_hal_status status,
                                                                   const char* function, const char* format,
                                                                   ...) noexcept;

// The library itself has just failed on this thread: its own detail counts again.
void forgetCoreFailure(const Instance& instance) noexcept;

// system.last_error of core's tables: core's failure if that is the newest, else the library's.
flagos_hal_status lastErrorOf(const Instance& instance, flagos_hal_error* out_error) noexcept;

// Puts what core itself answers into `instance.plain`: stubs that say UNSUPPORTED for members that are null,
// and the merged last_error.
void completeTables(Instance& instance);

// Fills `validated` and `traced` with the layers' functions around `plain` (and each other).
void buildValidatedTables(Instance& instance);
void buildTracedTables(Instance& instance);

// Calls `fill` with `instance`'s slot as a compile-time number: Filler<slot>::run(instance).
template <template <int> class Filler, int Slot = 0>
void withSlot(Instance& instance) {
  if constexpr (Slot < kMaxLibraries) {
    if (instance.slot() == Slot) {
      Filler<Slot>::run(instance);
    } else {
      withSlot<Filler, Slot + 1>(instance);
    }
  }
}

}  // namespace flagos::hal
