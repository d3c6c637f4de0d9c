// The checks that several functions share.
#include <cinttypes>

#include "csrc/hal/validator_calls.h"
#include "flagos/hal_support/error.hpp"

namespace flagos::hal {
namespace {

constexpr const char* originText(Range::Origin origin) {
  switch (origin) {
    case Range::Origin::Allocated:
      return "memory.allocate";
    case Range::Origin::AllocatedAsync:
      return "async_alloc.allocate_async";
    case Range::Origin::Imported:
      return "ipc.import_memory";
    case Range::Origin::Pinned:
      return "host.allocate";
    case Range::Origin::Registered:
      return "host.register_range";
  }
  return "?";
}

}  // namespace

flagos_hal_status Validator::checkOutput(Member member, const void* out, const char* name) noexcept {
  if (out) return FLAGOS_HAL_STATUS_OK;
  return violation(member, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "GEN-01", "%s is null", name);
}

flagos_hal_status Validator::checkDevice(Member member, int32_t device) noexcept {
  const int32_t count = device_count_.load(std::memory_order_acquire);
  if (device >= 0 && (count < 0 || device < count)) return FLAGOS_HAL_STATUS_OK;
  return violation(member, FLAGOS_HAL_STATUS_INVALID_DEVICE, "GEN-05",
                   "there is no device %d; the library has %d", device, count);
}

flagos_hal_status Validator::checkFlags(Member member, const char* name, uint32_t flags,
                                        uint32_t known) noexcept {
  if ((flags & ~known) == 0) return FLAGOS_HAL_STATUS_OK;
  return violation(member, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "GEN-10",
                   "%s is 0x%x; bits 0x%x are not defined", name, flags, flags & ~known);
}

// One text for the three kinds of handles.
#define FLAGOS_HAL_CHECK_HANDLE(kind, map)                                                                  \
  if (!kind) return violation(member, FLAGOS_HAL_STATUS_INVALID_HANDLE, "GEN-08", "the " #kind " is null"); \
  {                                                                                                         \
    bool was_alive = false;                                                                                 \
    {                                                                                                       \
      Lock lock(mutex_);                                                                                    \
      *out = map.find(kind);                                                                                \
      was_alive = map.wasAlive(kind);                                                                       \
    }                                                                                                       \
    if (!*out) {                                                                                            \
      return violation(                                                                                     \
          member, FLAGOS_HAL_STATUS_INVALID_HANDLE, "GEN-08",                                               \
          was_alive ? #kind " %p was destroyed before" : #kind " %p is not one that this library gave out", \
          static_cast<const void*>(kind));                                                                  \
    }                                                                                                       \
  }                                                                                                         \
  return FLAGOS_HAL_STATUS_OK;

flagos_hal_status Validator::checkStream(Member member, const flagos_hal_stream* stream,
                                         std::shared_ptr<StreamState>* out){
    FLAGOS_HAL_CHECK_HANDLE(stream, streams_)}

flagos_hal_status Validator::checkEvent(Member member, const flagos_hal_event* event,
                                        std::shared_ptr<EventState>* out){
    FLAGOS_HAL_CHECK_HANDLE(event, events_)}

flagos_hal_status Validator::checkGraph(Member member, const flagos_hal_graph* graph,
                                        std::shared_ptr<GraphState>* out){
    FLAGOS_HAL_CHECK_HANDLE(graph, graphs_)}
#undef FLAGOS_HAL_CHECK_HANDLE

flagos_hal_status Validator::refuseConcurrent(Member member) noexcept {
  return violation(member, FLAGOS_HAL_STATUS_INVALID_STATE, "GEN-06",
                   "another thread is queueing on the same stream; event.record and stream.wait_event must "
                   "be ordered with it by "
                   "the caller");
}

flagos_hal_status Validator::refuseUnknownPointer(Member member, const char* name, const void* pointer,
                                                  const char* what) {
  const Range* before = nullptr;
  Range released;
  {
    Lock lock(mutex_);
    before = released_.around(pointer);
    if (before) released = *before;
  }
  if (before) {
    return violation(member, FLAGOS_HAL_STATUS_INVALID_HANDLE, "GEN-08",
                     "%s %p lies in memory that was released before: %" PRIu64 " bytes at %p from %s", name,
                     pointer, released.size, reinterpret_cast<void*>(released.base),
                     originText(released.origin));
  }
  return violation(member, FLAGOS_HAL_STATUS_INVALID_HANDLE, "GEN-08", "%s %p is not %s", name, pointer,
                   what);
}

flagos_hal_status Validator::checkDeviceMemory(Member member, const char* name, int32_t device,
                                               const void* pointer, uint64_t size) {
  if (size == 0) return FLAGOS_HAL_STATUS_OK;  // GEN-07: the pointer is not looked at
  if (!pointer) {
    return violation(member, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, infoOf(member).id,
                     "%s is null, the size is %" PRIu64, name, size);
  }
  Range range;
  bool known = false;
  bool released_in_order = false;
  {
    Lock lock(mutex_);
    if (const Range* found = deviceRangeAround(pointer)) {
      range = *found;
      known = true;
    } else if (const Range* before = released_.around(pointer)) {
      released_in_order = before->origin == Range::Origin::AllocatedAsync;
    }
  }
  // After release_async the library knows the memory until the stream gets there.
  if (released_in_order) return refuseUnknownPointer(member, name, pointer, "device memory of this library");
  if (!known) {
    // Memory may have come from the vendor's own allocator (other libraries in the process): the library
    // decides.
    flagos_hal_pointer_info info = {};
    info.struct_size = sizeof(info);
    if (library_.memory.pointer_info(pointer, &info) != FLAGOS_HAL_STATUS_OK ||
        info.kind != FLAGOS_HAL_MEMORY_DEVICE) {
      return refuseUnknownPointer(member, name, pointer, "device memory of this library");
    }
    range.base = reinterpret_cast<uintptr_t>(info.base ? info.base : pointer);
    range.size = info.base ? info.size : 0;
    range.device = info.device;
  }
  if (range.device != device) {
    return violation(
        member, FLAGOS_HAL_STATUS_INVALID_HANDLE, infoOf(member).id,
        "%s %p is memory of device %d, the call is for device %d (between devices: peer.copy_async)", name,
        pointer, range.device, device);
  }
  const uint64_t offset = reinterpret_cast<uintptr_t>(pointer) - range.base;
  if (range.size != 0 && (offset > range.size || size > range.size - offset)) {
    return violation(member, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, infoOf(member).id,
                     "%s %p + %" PRIu64 " bytes reaches %" PRIu64
                     " bytes past the end of its allocation (%" PRIu64 " bytes at %p)",
                     name, pointer, size, size - (range.size - offset), range.size,
                     reinterpret_cast<void*>(range.base));
  }
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::checkHostMemory(Member member, const char* name, const void* pointer,
                                             uint64_t size) {
  if (size == 0) return FLAGOS_HAL_STATUS_OK;
  if (!pointer) {
    return violation(member, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, infoOf(member).id,
                     "%s is null, the size is %" PRIu64, name, size);
  }
  Range range;
  bool on_device = false;
  bool pinned = false;
  {
    Lock lock(mutex_);
    if (const Range* found = deviceRangeAround(pointer)) {
      range = *found;
      on_device = true;
    } else if (const Range* host = ranges_[kPinnedBook].around(pointer)) {
      range = *host;
      pinned = true;
    }
  }
  if (on_device && host_access_.load(std::memory_order_relaxed) == FLAGOS_HAL_HOST_ACCESS_NONE) {
    return violation(
        member, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, infoOf(member).id,
        "%s %p is memory of device %d where the kind says host memory, and the host cannot touch it", name,
        pointer, range.device);
  }
  if (!on_device && !pinned) return FLAGOS_HAL_STATUS_OK;  // pageable memory: nobody here knows its extent
  const uint64_t offset = reinterpret_cast<uintptr_t>(pointer) - range.base;
  if (range.size != 0 && size > range.size - offset) {
    return violation(member, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, infoOf(member).id,
                     "%s %p + %" PRIu64 " bytes reaches %" PRIu64
                     " bytes past the end of its allocation (%" PRIu64 " bytes at %p)",
                     name, pointer, size, size - (range.size - offset), range.size,
                     reinterpret_cast<void*>(range.base));
  }
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::checkCopy(Member member, int32_t device, const void* destination,
                                       const void* source, uint64_t size, int32_t kind) {
  const bool to_device = kind == FLAGOS_HAL_COPY_HOST_TO_DEVICE || kind == FLAGOS_HAL_COPY_DEVICE_TO_DEVICE;
  const bool from_device = kind == FLAGOS_HAL_COPY_DEVICE_TO_HOST || kind == FLAGOS_HAL_COPY_DEVICE_TO_DEVICE;
  if (kind < FLAGOS_HAL_COPY_HOST_TO_HOST || kind > FLAGOS_HAL_COPY_DEVICE_TO_DEVICE) {
    return violation(member, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "GEN-10", "%d is not a flagos_hal_copy_kind",
                     kind);
  }
  FLAGOS_HAL_TRY(to_device ? checkDeviceMemory(member, "destination", device, destination, size)
                           : checkHostMemory(member, "destination", destination, size));
  FLAGOS_HAL_TRY(from_device ? checkDeviceMemory(member, "source", device, source, size)
                             : checkHostMemory(member, "source", source, size));
  const uintptr_t to = reinterpret_cast<uintptr_t>(destination);
  const uintptr_t from = reinterpret_cast<uintptr_t>(source);
  if (size != 0 && (to < from ? from - to : to - from) < size) {
    return violation(member, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "HAL-MEM-03",
                     "the ranges overlap: %" PRIu64 " bytes from %p to %p", size, source, destination);
  }
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::checkFill(Member member, int32_t device, const void* destination, int32_t value,
                                       uint64_t size) {
  if (value < 0 || value > 255) {
    return violation(member, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "HAL-MEM-05",
                     "the value is %d, expected 0 to 255", value);
  }
  return checkDeviceMemory(member, "destination", device, destination, size);
}

flagos_hal_status Validator::checkIpcHandle(Member member, const flagos_hal_ipc_handle* handle) noexcept {
  if (!handle)
    return violation(member, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, infoOf(member).id, "the handle is null");
  if (handle->size > FLAGOS_HAL_IPC_HANDLE_SIZE) {
    return violation(member, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, infoOf(member).id,
                     "the handle's size is %u, expected at most %d: it is not one that an export made",
                     handle->size, FLAGOS_HAL_IPC_HANDLE_SIZE);
  }
  return FLAGOS_HAL_STATUS_OK;
}

const Range* Validator::deviceRangeAround(const void* pointer) const {
  const Range* range = ranges_[kDeviceBook].around(pointer);
  return range ? range : ranges_[kImportedBook].around(pointer);
}

flagos_hal_status Validator::takeRange(Member member, Book book, int32_t device, const void* pointer,
                                       Range* out) {
  bool known = false;
  {
    // Taken out before the library is asked: afterwards another thread may be given the same address.
    Lock lock(mutex_);
    const Range* found = ranges_[book].at(pointer);
    if (found && (device < 0 || found->device == device)) {
      *out = *found;
      ranges_[book].remove(pointer);
      released_.add(*out);
      return FLAGOS_HAL_STATUS_OK;
    }
    for (int other = 0; !found && other < kBookCount; ++other) found = ranges_[other].around(pointer);
    if (found) {
      *out = *found;
      known = true;
    }
  }
  if (!known) return refuseUnknownPointer(member, "pointer", pointer, "memory that this library gave out");
  if (bookOf(out->origin) != book) {
    return violation(member, FLAGOS_HAL_STATUS_INVALID_HANDLE, infoOf(member).id,
                     "%p came from %s and is not given back by this function", pointer,
                     originText(out->origin));
  }
  if (out->base != reinterpret_cast<uintptr_t>(pointer)) {
    return violation(member, FLAGOS_HAL_STATUS_INVALID_HANDLE, infoOf(member).id,
                     "%p is not the start of an allocation; it lies in %" PRIu64 " bytes at %p", pointer,
                     out->size, reinterpret_cast<void*>(out->base));
  }
  return violation(member, FLAGOS_HAL_STATUS_INVALID_HANDLE, infoOf(member).id,
                   "%p is memory of device %d; the call names device %d", pointer, out->device, device);
}

void Validator::putBack(const Range& range) {
  Lock lock(mutex_);
  released_.forget(range.base, range.size);
  ranges_[bookOf(range.origin)].add(range);
}

flagos_hal_status Validator::addRange(Member member, const Range& range) {
  Range other;
  {
    Lock lock(mutex_);
    RangeMap& ranges = ranges_[bookOf(range.origin)];
    const Range* overlap = ranges.overlapping(range.base, range.size ? range.size : 1);
    // The same import twice may give the same address, with one count the more: the later one stands for
    // both.
    if (!overlap || range.origin == Range::Origin::Imported) {
      released_.forget(range.base, range.size);
      ranges.add(range);
      return FLAGOS_HAL_STATUS_OK;
    }
    other = *overlap;
  }
  return libraryFault(
      member, infoOf(member).id,
      "it gave out %" PRIu64 " bytes at %p, which overlap %" PRIu64 " bytes at %p that are in use",
      range.size, reinterpret_cast<void*>(range.base), other.size, reinterpret_cast<void*>(other.base));
}

}  // namespace flagos::hal
