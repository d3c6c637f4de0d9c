// Turns the answer of a library's query into tables of this core's own layout, or refuses it.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>

#include "csrc/hal/library.h"
#include "csrc/hal/members.h"

namespace flagos::hal {

// The versions of the ABI that this core accepts.
struct AcceptedAbi {
  uint32_t major;
  uint32_t minor;         // our own
  uint32_t oldest_minor;  // libraries below it are refused
};

// 1.0 is the first release, so there is nothing below it. Raise it with the reason here: what an older
// library gets wrong that core cannot make up for.
inline constexpr uint32_t kOldestAcceptedMinor = 0;
inline constexpr AcceptedAbi kAcceptedAbi = {FLAGOS_HAL_ABI_MAJOR, FLAGOS_HAL_ABI_MINOR,
                                             kOldestAcceptedMinor};

// A table of the real interface has tens of members; a size beyond this is garbage.
inline constexpr size_t kLargestTable = size_t{1} << 16;

struct Negotiated {
  Tables tables = {};  // absent members are null here; the caller puts stubs in their place
  std::bitset<kMemberCount> absent;
  uint32_t abi_major = 0;
  uint32_t abi_minor = 0;
};

// Asks `query` for the tables and checks them. `backend` and `path` are for messages. Throws LoadError:
// AbiRefused, BadTable.
Negotiated negotiate(flagos_hal_query_fn query, const std::string& backend, const std::string& path,
                     const AcceptedAbi& accepted = kAcceptedAbi);

}  // namespace flagos::hal
