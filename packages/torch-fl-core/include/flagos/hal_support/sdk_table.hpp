// Makes a structure of the SDK's functions, and its loader, of one list. Include it once for each list,
// outside any namespace block that you do not want the structure in:
//
//   symbols.def:   SDK_REQUIRED(int, mcMalloc, (void** pointer, size_t size))
//                  SDK_OPTIONAL(int, mcMallocAsync, (void** pointer, size_t size, void* stream))
//
//   #define FLAGOS_SDK_STRUCT Sdk
//   #define FLAGOS_SDK_SYMBOLS "symbols.def"   // on the include path: it is read from here, not from your
//   file #include "flagos/hal_support/sdk_table.hpp"
//
// gives `struct Sdk` with a pointer of each name (null for an optional one that the library lacks) and
// `flagos_hal_status load(const SdkLibrary&)`, which is UNAVAILABLE and names all required functions that are
// missing. For a list of names without their prefix, load(library, "cuda") finds cudaMalloc for Malloc. No
// #pragma once: there may be several lists.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "flagos/hal_support/sdk.hpp"

#ifndef FLAGOS_SDK_STRUCT
#error "define FLAGOS_SDK_STRUCT, the name of the structure"
#endif
#ifndef FLAGOS_SDK_SYMBOLS
#error "define FLAGOS_SDK_SYMBOLS, the file that lists the functions"
#endif

struct __attribute__((visibility("hidden"))) FLAGOS_SDK_STRUCT {
#define SDK_REQUIRED(result, name, parameters) result(*name) parameters = nullptr;
#define SDK_OPTIONAL(result, name, parameters) result(*name) parameters = nullptr;
#include FLAGOS_SDK_SYMBOLS
#undef SDK_REQUIRED
#undef SDK_OPTIONAL

  flagos_hal_status load(const ::flagos::hal_support::SdkLibrary& library, const std::string& prefix = "") {
    std::string missing;
    const auto find = [&](auto* function, const char* name, bool required) {
      const std::string full = prefix + name;
      void* symbol = library.find(full.c_str());
      static_assert(sizeof(*function) == sizeof(symbol), "POSIX: a function's address fits a data pointer");
      std::memcpy(function, &symbol, sizeof(symbol));
      if (!symbol && required) missing += (missing.empty() ? "" : ", ") + full;
    };
#define SDK_REQUIRED(result, name, parameters) find(&name, #name, true);
#define SDK_OPTIONAL(result, name, parameters) find(&name, #name, false);
#include FLAGOS_SDK_SYMBOLS
#undef SDK_REQUIRED
#undef SDK_OPTIONAL
    if (missing.empty()) return FLAGOS_HAL_STATUS_OK;
    return ::flagos::hal_support::fail(FLAGOS_HAL_STATUS_UNAVAILABLE,
                                       "%s lacks functions that this backend needs: %s", library.path(),
                                       missing.c_str());
  }
};

#undef FLAGOS_SDK_STRUCT
#undef FLAGOS_SDK_SYMBOLS
