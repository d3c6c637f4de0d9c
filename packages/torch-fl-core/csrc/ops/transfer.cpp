#include "csrc/ops/transfer.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/Stream.h>

#include <algorithm>

#include "csrc/runtime/companion.h"
#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/devices.h"
#include "csrc/runtime/event.h"
#include "csrc/runtime/host_allocator.h"
#include "csrc/runtime/stream.h"

namespace flagos::ops {

namespace {

struct Range {
  char* data;
  uint64_t bytes;
};

Range bytesOf(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  auto* base =
      static_cast<char*>(impl->unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get());
  return {base + impl->storage_offset() * static_cast<int64_t>(impl->itemsize()),
          static_cast<uint64_t>(impl->numel()) * impl->itemsize()};
}

// Host to device or back, on the device's current stream.
void transferHost(const at::Tensor& device_tensor, void* destination, const void* source, void* host,
                  uint64_t bytes, int32_t kind, bool non_blocking) {
  const DeviceEntry& entry = deviceEntry(device_tensor.device().index());
  const c10::Stream stream = currentStream(entry.index);
  const char* what = kind == FLAGOS_HAL_COPY_HOST_TO_DEVICE ? "copy from the host" : "copy to the host";
  if (!non_blocking || !isPinned(host)) {
    // Waiting first and copying in the caller's thread needs no pinned memory, and is the shorter way when
    // the stream is idle.
    drainCurrentStream(entry);
    FLAGOS_CHECK(entry, entry.hal->memory.copy(entry.local, destination, source, bytes, kind), what);
    return;
  }
  FLAGOS_CHECK(entry, entry.hal->memory.copy_async(streamHandle(stream), destination, source, bytes, kind),
               what);
  if (!recordPinnedUse(host, stream)) {
    // Pinned by somebody else, who may free it when this returns: nothing would keep it until the stream has
    // passed.
    synchronizeStream(stream);
  }
}

// Makes `later` wait for what `earlier` holds now.
void order(c10::Stream earlier, c10::Stream later) {
  Event event;
  event.record(earlier);
  event.block(later);
}

// Two devices of one backend: queued on the source's current stream, with the destination's waiting on both
// sides.
void transferPeer(const DeviceEntry& to, char* destination, const DeviceEntry& from, const char* source,
                  uint64_t bytes) {
  const c10::Stream source_stream = currentStream(from.index);
  const c10::Stream destination_stream = currentStream(to.index);
  order(destination_stream, source_stream);
  FLAGOS_CHECK(from,
               from.hal->peer.copy_async(streamHandle(source_stream), to.local, destination, from.local,
                                         source, bytes),
               "copy to another device");
  order(source_stream, destination_stream);
}

// On the device's current stream, which `stream` is; by the companion where there is one.
void queueCopy(const DeviceEntry& entry, c10::Stream stream, void* destination, const void* source,
               uint64_t bytes, int32_t kind, const char* what) {
  if (entry.companion != nullptr) {
    copyByCompanion(entry, destination, kind == FLAGOS_HAL_COPY_DEVICE_TO_HOST, source,
                    kind == FLAGOS_HAL_COPY_HOST_TO_DEVICE, bytes, /*non_blocking=*/true);
    return;
  }
  FLAGOS_CHECK(entry, entry.hal->memory.copy_async(streamHandle(stream), destination, source, bytes, kind),
               what);
}

// Two backends, or one without peer copies: through pinned memory in pieces. Neither can wait for the other's
// events, so the host waits for the last one; the copies of neighbouring pieces overlap.
void transferStaged(const DeviceEntry& to, char* destination, const DeviceEntry& from, const char* source,
                    uint64_t bytes) {
  constexpr uint64_t kPiece = uint64_t{4} << 20;
  const c10::Stream source_stream = currentStream(from.index);
  const c10::Stream destination_stream = currentStream(to.index);
  at::DataPtr buffers[2];
  Event filled[2];
  Event emptied[2];
  const uint64_t size = std::min(bytes, kPiece);
  // A backend need not have pinned memory; its copies then block, and all else is the same.
  c10::Allocator* host = from.hal->has_host && to.hal->has_host ? hostAllocator() : c10::GetCPUAllocator();
  for (auto& buffer : buffers) buffer = host->allocate(size);
  auto start = [&](uint64_t offset, int slot) {
    const uint64_t piece = std::min(size, bytes - offset);
    emptied[slot].synchronize();
    queueCopy(from, source_stream, buffers[slot].get(), source + offset, piece,
              FLAGOS_HAL_COPY_DEVICE_TO_HOST, "copy to the host on the way to another backend");
    filled[slot].record(source_stream);
  };
  start(0, 0);
  int slot = 0;
  for (uint64_t offset = 0; offset < bytes; offset += size, slot ^= 1) {
    if (offset + size < bytes) start(offset + size, slot ^ 1);
    filled[slot].synchronize();
    queueCopy(to, destination_stream, destination + offset, buffers[slot].get(),
              std::min(size, bytes - offset), FLAGOS_HAL_COPY_HOST_TO_DEVICE,
              "copy from the host on the way from another backend");
    emptied[slot].record(destination_stream);
  }
  for (auto& event : emptied) event.synchronize();
}

}  // namespace

void transfer(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  const Range to = bytesOf(destination);
  const Range from = bytesOf(source);
  if (from.bytes == 0) return;
  if (source.device().type() != kDeviceType) {
    transferHost(destination, to.data, from.data, from.data, from.bytes, FLAGOS_HAL_COPY_HOST_TO_DEVICE,
                 non_blocking);
    return;
  }
  if (destination.device().type() != kDeviceType) {
    transferHost(source, to.data, from.data, to.data, from.bytes, FLAGOS_HAL_COPY_DEVICE_TO_HOST,
                 non_blocking);
    return;
  }
  const DeviceEntry& to_device = deviceEntry(destination.device().index());
  const DeviceEntry& from_device = deviceEntry(source.device().index());
  if (to_device.index == from_device.index) {
    const c10::Stream stream = currentStream(to_device.index);
    FLAGOS_CHECK(to_device,
                 to_device.hal->memory.copy_async(streamHandle(stream), to.data, from.data, from.bytes,
                                                  FLAGOS_HAL_COPY_DEVICE_TO_DEVICE),
                 "copy within the device");
  } else if (to_device.backend == from_device.backend && to_device.hal->has_peer) {
    transferPeer(to_device, to.data, from_device, from.data, from.bytes);
  } else {
    transferStaged(to_device, to.data, from_device, from.data, from.bytes);
  }
}

}  // namespace flagos::ops
