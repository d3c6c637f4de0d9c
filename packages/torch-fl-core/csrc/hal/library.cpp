#include "csrc/hal/library.h"

#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/hal/instance.h"
#include "csrc/hal/negotiation.h"
#include "csrc/hal/shared_object.h"
#include "csrc/hal/tracer.h"
#include "csrc/hal/validator.h"

namespace flagos::hal {
namespace {

// What makes two opens the same: the library's own function (one address for each loaded copy) and how it is
// wrapped.
using Key = std::tuple<flagos_hal_query_fn, std::string, bool, bool, bool, std::string>;

struct OpenLibraries {
  std::mutex mutex;
  std::vector<std::pair<Key, std::shared_ptr<Instance>>> all;  // by slot; guarded by mutex
};

// Never destroyed: libraries are in use until the very end of the process.
OpenLibraries& openLibraries() {
  static OpenLibraries& libraries = *new OpenLibraries;
  return libraries;
}

std::shared_ptr<Instance> makeInstance(int slot, const std::string& name, const std::string& path,
                                       const OpenOptions& options, const Negotiated& negotiated) {
  auto instance = std::make_shared<Instance>(slot, name, path);
  instance->abi_major = negotiated.abi_major;
  instance->abi_minor = negotiated.abi_minor;
  instance->absent = negotiated.absent;
  instance->plain = negotiated.tables;
  completeTables(*instance);
  if (options.validate) {
    instance->validator = std::make_unique<Validator>(*instance, options.log_violations);
    buildValidatedTables(*instance);
    instance->outer = &instance->validated;
  }
  if (options.trace) {
    instance->tracer = std::make_unique<Tracer>(*instance, *instance->outer, options.trace_path);
    buildTracedTables(*instance);
    instance->outer = &instance->traced;
  }
  return instance;
}

}  // namespace

std::shared_ptr<Library> Library::open(const std::string& name, const std::string& path,
                                       const OpenOptions& options) {
  SharedObject object(name, path, options.private_copy);
  const flagos_hal_query_fn query = object.queryFunction();
  const Negotiated negotiated = negotiate(query, name, path);

  OpenLibraries& libraries = openLibraries();
  std::lock_guard<std::mutex> lock(libraries.mutex);
  const Key key(query, name, options.validate, options.validate && options.log_violations, options.trace,
                options.trace_path);
  for (const auto& [existing, instance] : libraries.all) {
    if (existing == key) return instance;
  }
  const int slot = static_cast<int>(libraries.all.size());
  if (slot >= kMaxLibraries) {
    throw LoadError(LoadError::Kind::InitFailed,
                    "flagos: backend '" + name + "': " + std::to_string(kMaxLibraries) +
                        " HAL libraries are open in this process, which is the most it can "
                        "have; '" +
                        path + "' was not opened. Name fewer in FLAGOS_BACKENDS.");
  }
  std::shared_ptr<Instance> instance = makeInstance(slot, name, path, options, negotiated);
  libraries.all.emplace_back(key, instance);
  detail::instances[slot] = instance.get();
  object.keep();
  return instance;
}

}  // namespace flagos::hal
