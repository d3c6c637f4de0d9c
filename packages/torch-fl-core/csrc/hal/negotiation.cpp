#include "csrc/hal/negotiation.h"

#include <cstring>
#include <vector>

namespace flagos::hal {
namespace {

std::string version(uint32_t major, uint32_t minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string acceptedText(const AcceptedAbi& accepted) {
  std::string text = version(accepted.major, accepted.minor);
  if (accepted.oldest_minor < accepted.minor)
    text += " (back to " + version(accepted.major, accepted.oldest_minor) + ")";
  return text;
}

std::string join(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

// Empty if `size` can be the size of a table with at least `least` bytes, else what is wrong with it.
std::string sizeFault(size_t size, size_t least) {
  if (size >= least && size <= kLargestTable && size % sizeof(void*) == 0) return "";
  std::string text = "struct_size is " + std::to_string(size) + ", expected ";
  if (size % sizeof(void*) != 0 && size > least && size < kLargestTable) {
    return text + "a multiple of " + std::to_string(sizeof(void*));
  }
  return text + std::to_string(least) + " to " + std::to_string(kLargestTable);
}

template <typename Table>
bool misaligned(const Table* table) {
  return reinterpret_cast<uintptr_t>(table) % alignof(Table) != 0;
}

class Negotiation {
 public:
  Negotiation(const std::string& backend, const std::string& path, const AcceptedAbi& accepted)
      : start_("flagos: backend '" + backend + "': '" + path + "' "), accepted_(accepted) {}

  Negotiated run(flagos_hal_query_fn query) {
    const flagos_hal_api* theirs = nullptr;
    const flagos_hal_status status = query(accepted_.major, accepted_.minor, &theirs);
    checkAnswer(status, theirs);
    flagos_hal_api api = {};
    std::memcpy(static_cast<void*>(&api), theirs,
                theirs->struct_size < sizeof(api) ? theirs->struct_size : sizeof(api));
    result_.abi_major = api.abi_major;
    result_.abi_minor = api.abi_minor;
#define FLAGOS_HAL_GROUP(group, need) takeGroup(api.group, result_.tables.group, #group, Need::need);
#include "flagos/hal_members.def"
    // All faults at once: a vendor who mends one should not meet the next at the next try.
    if (!faults_.empty()) refuse(LoadError::Kind::BadTable, "has unusable tables: " + join(faults_, "; "));
#define FLAGOS_HAL_MEMBER(group, member, need, since, before_init, id, parameters) \
  result_.absent[static_cast<size_t>(Member::group##_##member)] = result_.tables.group.member == nullptr;
#include "flagos/hal_members.def"
    checkRequired();
    result_.tables.has_host = api.host != nullptr;
    result_.tables.has_peer = api.peer != nullptr;
    result_.tables.has_ipc = api.ipc != nullptr;
    result_.tables.has_graph = api.graph != nullptr;
    result_.tables.has_trace = api.trace != nullptr;
    result_.tables.has_async_alloc = api.async_alloc != nullptr;
    return result_;
  }

 private:
  [[noreturn]] void refuse(LoadError::Kind kind, const std::string& what) const {
    throw LoadError(
        kind, start_ + what +
                  (kind == LoadError::Kind::AbiRefused
                       ? ". Install a release of the backend's package that fits this torch-fl-core."
                       : ". It is a fault of the library: report it to its vendor, or try another release.") +
                  " Details: python -m torch_fl.doctor");
  }

  [[noreturn]] void refuseVersion(const std::string& theirs) const {
    refuse(LoadError::Kind::AbiRefused,
           "speaks HAL ABI " + theirs + ", this torch-fl-core speaks " + acceptedText(accepted_));
  }

  void checkAnswer(flagos_hal_status status, const flagos_hal_api* theirs) const {
    const bool readable = theirs && !misaligned(theirs) && sizeFault(theirs->struct_size, kHeader).empty();
    if (status == FLAGOS_HAL_STATUS_ABI_MISMATCH) {
      refuseVersion(readable ? version(theirs->abi_major, theirs->abi_minor) : "of an unknown version");
    }
    if (status != FLAGOS_HAL_STATUS_OK) {
      refuse(LoadError::Kind::BadTable, std::string(FLAGOS_HAL_QUERY_SYMBOL " returned ") +
                                            statusName(status) + " (" + std::to_string(status) +
                                            ") instead of tables");
    }
    if (!theirs) refuse(LoadError::Kind::BadTable, FLAGOS_HAL_QUERY_SYMBOL " returned OK and no tables");
    if (misaligned(theirs))
      refuse(LoadError::Kind::BadTable, FLAGOS_HAL_QUERY_SYMBOL " returned a misaligned pointer");
    const std::string fault = sizeFault(theirs->struct_size, kHeader);
    if (!fault.empty()) refuse(LoadError::Kind::BadTable, "has an unusable flagos_hal_api: " + fault);
    if (theirs->abi_major != accepted_.major || theirs->abi_minor + uint64_t{1} <= accepted_.oldest_minor) {
      refuseVersion(version(theirs->abi_major, theirs->abi_minor));
    }
  }

  template <typename Table>
  void takeGroup(const Table* theirs, Table& ours, const char* group, Need need) {
    if (theirs) {
      // A table of nothing but its size is as good as none, and surely not meant.
      const std::string fault = misaligned(theirs)
                                    ? "the pointer is misaligned"
                                    : sizeFault(theirs->struct_size, sizeof(size_t) + sizeof(void*));
      if (!fault.empty()) {
        faults_.push_back(std::string("group '") + group + "': " + fault);
      } else {
        std::memcpy(static_cast<void*>(&ours), theirs,
                    theirs->struct_size < sizeof(Table) ? theirs->struct_size : sizeof(Table));
      }
    } else if (need == Need::REQUIRED) {
      faults_.push_back(std::string("the required group '") + group + "' is null");
    }
    ours.struct_size = sizeof(Table);
  }

  void checkRequired() const {
    std::vector<std::string> missing;
    for (size_t i = 0; i < kMemberCount; ++i) {
      const MemberInfo& info = kMembers[i];
      // What a later minor than the library's made required cannot be asked of it.
      if (result_.absent[i] && info.need == Need::REQUIRED && info.since <= result_.abi_minor) {
        missing.push_back(std::string(info.name) + " (" + info.id + ")");
      }
    }
    if (!missing.empty()) {
      refuse(LoadError::Kind::BadTable, "lacks required functions of HAL ABI " +
                                            version(result_.abi_major, result_.abi_minor) + ": " +
                                            join(missing, ", "));
    }
  }

  // The part that never changes, whatever the version: struct_size, abi_major, abi_minor.
  static constexpr size_t kHeader = offsetof(flagos_hal_api, system);

  const std::string start_;
  const AcceptedAbi accepted_;
  std::vector<std::string> faults_;
  Negotiated result_;
};

}  // namespace

Negotiated negotiate(flagos_hal_query_fn query, const std::string& backend, const std::string& path,
                     const AcceptedAbi& accepted) {
  return Negotiation(backend, path, accepted).run(query);
}

}  // namespace flagos::hal
