// The members of the HAL's tables as data (from flagos/hal_members.def) and what the layers need to know of
// each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flagos/hal.h"

namespace flagos::hal {

enum class Member : int {
#define FLAGOS_HAL_MEMBER(group, member, need, since, before_init, id, parameters) group##_##member,
#include "flagos/hal_members.def"
  Count
};

inline constexpr int kMemberCount = static_cast<int>(Member::Count);

enum class Need { REQUIRED, OPTIONAL };
enum class BeforeInit { CALL, RELEASE, ANYTIME };

struct MemberInfo {
  const char* group;
  const char* name;        // "memory.allocate"
  const char* id;          // "HAL-MEM-01"
  const char* parameters;  // "device, size, out_pointer"
  Need need;
  BeforeInit before_init;
  uint32_t since;  // minor
  size_t offset;   // in the group's table
};

inline constexpr MemberInfo kMembers[] = {
#define FLAGOS_HAL_MEMBER(group, member, need, since, before_init, id, parameters) \
  {#group,     #group "." #member,      id,    parameters,                         \
   Need::need, BeforeInit::before_init, since, offsetof(flagos_hal_##group##_api, member)},
#include "flagos/hal_members.def"
};

inline constexpr const MemberInfo& infoOf(Member member) { return kMembers[static_cast<int>(member)]; }

}  // namespace flagos::hal
