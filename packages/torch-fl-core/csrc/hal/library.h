// A HAL library opened in this process: loading, version negotiation, and tables in which every member can be
// called. Nothing here knows torch or Python.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "csrc/api.h"
#include "flagos/hal.h"

namespace flagos::hal {

// Copies of the library's tables, cut or filled up to this core's own layout. Every function pointer is
// callable: an optional member that the library lacks answers UNSUPPORTED, so callers never test for null.
struct Tables {
  flagos_hal_system_api system;
  flagos_hal_device_api device;
  flagos_hal_memory_api memory;
  flagos_hal_stream_api stream;
  flagos_hal_event_api event;
  flagos_hal_host_api host;
  flagos_hal_peer_api peer;
  flagos_hal_ipc_api ipc;
  flagos_hal_graph_api graph;
  flagos_hal_trace_api trace;
  flagos_hal_async_alloc_api async_alloc;
  // Whether the library brought the optional group (its members may still be stubs).
  bool has_host = false;
  bool has_peer = false;
  bool has_ipc = false;
  bool has_graph = false;
  bool has_trace = false;
  bool has_async_alloc = false;
};

// Why a library could not be used. `kind` is what the report prints as the state of the backend.
class FLAGOS_API LoadError : public std::runtime_error {
 public:
  enum class Kind { NotFound, NotALibrary, NoEntryPoint, AbiRefused, BadTable, InitFailed };
  LoadError(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

struct OpenOptions {
  // Load a second, independent instance of a library that may be loaded already (its own globals): the file
  // is mapped from an anonymous copy. A library that finds others by $ORIGIN cannot be copied.
  bool private_copy = false;
  // FLAGOS_HAL_VALIDATE: check arguments, handles, lifetimes and threads around every call.
  bool validate = false;
  // With validate: one line to standard error for each violation, beside status and last error.
  bool log_violations = true;
  // FLAGOS_HAL_TRACE: write one line per call.
  bool trace = false;
  std::string trace_path;  // file for the trace; empty: standard error
};

// How many libraries one process can have open; one more is refused (InitFailed).
inline constexpr int kMaxLibraries = 16;

// An opened library. It stays loaded until the process ends: pointers into it may be anywhere.
class FLAGOS_API Library {
 public:
  // Opens `path` as backend `name` and negotiates the ABI. Does not call init. Throws LoadError. The same
  // arguments give the same Library again, save that each private copy is a new one.
  static std::shared_ptr<Library> open(const std::string& name, const std::string& path,
                                       const OpenOptions& options = {});

  virtual ~Library() = default;
  virtual const std::string& name() const noexcept = 0;
  virtual const std::string& path() const noexcept = 0;
  virtual uint32_t abiMajor() const noexcept = 0;
  virtual uint32_t abiMinor() const noexcept = 0;
  // With layers: the outermost layer's functions. The reference stays valid for the life of the process.
  virtual const Tables& tables() const noexcept = 0;
  // What the validating layer has found so far; 0 without it.
  virtual uint64_t violations() const noexcept = 0;
};

// "OUT_OF_MEMORY", and its text of hal_status.def; "?" for a number that is no status.
FLAGOS_API const char* statusName(flagos_hal_status status) noexcept;
FLAGOS_API const char* statusText(flagos_hal_status status) noexcept;

// One line on the last failure of this thread in a library: "memory.allocate failed: OUT_OF_MEMORY (…):
// <message> [cudaErrorMemoryAllocation, 2]".
FLAGOS_API std::string describeFailure(const Tables& tables, const std::string& backend,
                                       flagos_hal_status status);

}  // namespace flagos::hal
