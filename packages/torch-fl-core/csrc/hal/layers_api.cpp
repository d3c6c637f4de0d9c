#include "csrc/hal/layers_api.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "csrc/hal/library.h"

namespace flagos::hal {
namespace {

thread_local std::string open_error;
thread_local int32_t open_error_kind = -1;

struct HandedOut {
  std::shared_ptr<Library> library;
  flagos_hal_api api;
};

struct AllHandedOut {
  std::mutex mutex;
  std::map<const Library*, std::unique_ptr<HandedOut>> by_library;  // guarded by mutex
};

AllHandedOut& handedOut() {
  static AllHandedOut& all = *new AllHandedOut;  // tables live as long as the process
  return all;
}

flagos_hal_api tablesOf(const Library& library) {
  const Tables& tables = library.tables();
  flagos_hal_api api = {};
  api.struct_size = sizeof(api);
  api.abi_major = library.abiMajor();
  api.abi_minor = library.abiMinor();
  api.system = &tables.system;
  api.device = &tables.device;
  api.memory = &tables.memory;
  api.stream = &tables.stream;
  api.event = &tables.event;
  if (tables.has_host) api.host = &tables.host;
  if (tables.has_peer) api.peer = &tables.peer;
  if (tables.has_ipc) api.ipc = &tables.ipc;
  if (tables.has_graph) api.graph = &tables.graph;
  if (tables.has_trace) api.trace = &tables.trace;
  if (tables.has_async_alloc) api.async_alloc = &tables.async_alloc;
  return api;
}

const flagos_hal_api* open(const char* name, const char* path, uint32_t flags, const char* trace_path) {
  constexpr uint32_t kKnown =
      FLAGOS_LAYERS_VALIDATE | FLAGOS_LAYERS_TRACE | FLAGOS_LAYERS_PRIVATE_COPY | FLAGOS_LAYERS_QUIET;
  if (flags & ~kKnown) {
    throw LoadError(
        LoadError::Kind::InitFailed,
        "flagos_layers_open: the flags have bits that are not defined: " + std::to_string(flags & ~kKnown));
  }
  OpenOptions options;
  options.private_copy = (flags & FLAGOS_LAYERS_PRIVATE_COPY) != 0;
  options.validate = (flags & FLAGOS_LAYERS_VALIDATE) != 0;
  options.log_violations = (flags & FLAGOS_LAYERS_QUIET) == 0;
  options.trace = (flags & FLAGOS_LAYERS_TRACE) != 0;
  options.trace_path = trace_path ? trace_path : "";
  std::shared_ptr<Library> library = Library::open(name ? name : "", path ? path : "", options);
  AllHandedOut& all = handedOut();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::unique_ptr<HandedOut>& entry = all.by_library[library.get()];
  if (!entry) entry.reset(new HandedOut{library, tablesOf(*library)});
  return &entry->api;
}

}  // namespace
}  // namespace flagos::hal

extern "C" {

const flagos_hal_api* flagos_layers_open(const char* name, const char* path, uint32_t flags,
                                         const char* trace_path) {
  using namespace flagos::hal;
  try {
    return open(name, path, flags, trace_path);
  } catch (const LoadError& error) {
    open_error = error.what();
    open_error_kind = static_cast<int32_t>(error.kind());
  } catch (const std::exception& error) {
    open_error = error.what();
    open_error_kind = FLAGOS_LAYERS_INIT_FAILED;
  }
  return nullptr;
}

const char* flagos_layers_error(void) { return flagos::hal::open_error.c_str(); }

int32_t flagos_layers_error_kind(void) { return flagos::hal::open_error_kind; }

uint64_t flagos_layers_violations(const flagos_hal_api* api) {
  using namespace flagos::hal;
  AllHandedOut& all = handedOut();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& entry : all.by_library) {
    if (&entry.second->api == api) return entry.first->violations();
  }
  return 0;
}

}  // extern "C"
