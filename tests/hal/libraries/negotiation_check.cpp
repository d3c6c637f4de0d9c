// Negotiates with the library argv[1] as a core of ABI argv[2].argv[3] that accepts minors from argv[4] on
// would: later cores, before they exist. Prints "ok <major>.<minor> <absent members>…", or the kind and
// message of the refusal.
#include "csrc/hal/negotiation.h"

#include <cstdio>
#include <cstdlib>

#include "csrc/hal/negotiation.cpp"
#include "csrc/hal/shared_object.cpp"
#include "csrc/hal/status.cpp"

int main(int count, char** arguments) {
  if (count != 5) return 2;
  using namespace flagos::hal;
  const auto number = [&](int index) {
    return static_cast<uint32_t>(std::strtoul(arguments[index], nullptr, 10));
  };
  try {
    SharedObject object("tested", arguments[1], false);
    const Negotiated result =
        negotiate(object.queryFunction(), "tested", arguments[1], {number(2), number(3), number(4)});
    std::printf("ok %u.%u", result.abi_major, result.abi_minor);
    for (size_t i = 0; i < kMemberCount; ++i) {
      if (result.absent[i]) std::printf(" %s", kMembers[i].name);
    }
    std::printf("\n");
  } catch (const LoadError& error) {
    std::printf("refused %d %s\n", static_cast<int>(error.kind()), error.what());
  }
  return 0;
}
