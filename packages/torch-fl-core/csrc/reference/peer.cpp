// Group peer: all devices share the host's memory, so every device reaches every other.
#include <atomic>

#include "csrc/reference/device.h"
#include "csrc/reference/options.h"
#include "csrc/reference/queue.h"
#include "csrc/reference/stream.h"
#include "csrc/reference/tables.h"

namespace flagos::reference {

namespace {

flagos_hal_status canAccess(int32_t device, int32_t peer, int32_t* out_yes) {
  return invoke(Function::peer_can_access, device, [&] {
    FLAGOS_HAL_REQUIRE(out_yes, INVALID_ARGUMENT, "out_yes is null");
    FLAGOS_HAL_TRY(checkDevice(device));
    FLAGOS_HAL_TRY(checkDevice(peer));
    *out_yes = device != peer;
    return kOk;
  });
}

// There is nothing to switch: what the arguments may be is all that these two check.
flagos_hal_status checkPair(int32_t device, int32_t peer) {
  FLAGOS_HAL_TRY(checkDevice(device));
  FLAGOS_HAL_TRY(checkDevice(peer));
  FLAGOS_HAL_REQUIRE(device != peer, UNSUPPORTED, "device %d is not its own peer", device);
  return kOk;
}

flagos_hal_status enable(int32_t device, int32_t peer) {
  return invoke(Function::peer_enable, device, [&] { return checkPair(device, peer); });
}

flagos_hal_status disable(int32_t device, int32_t peer) {
  return invoke(Function::peer_disable, device, [&]() -> flagos_hal_status {
    FLAGOS_HAL_TRY(checkDevice(device));
    return checkDevice(peer);
  });
}

flagos_hal_status copyAsync(flagos_hal_stream* handle, int32_t destination_device, void* destination,
                            int32_t source_device, const void* source, uint64_t size) {
  return invokeOnStream(Function::peer_copy_async, handle, [&](Stream& stream) {
    FLAGOS_HAL_TRY(checkDevice(destination_device));
    FLAGOS_HAL_TRY(checkDevice(source_device));
    FLAGOS_HAL_REQUIRE(stream.device == destination_device || stream.device == source_device,
                       INVALID_ARGUMENT, "a stream of device %d cannot copy from device %d to device %d",
                       stream.device, source_device, destination_device);
    FLAGOS_HAL_REQUIRE((destination && source) || size == 0, INVALID_ARGUMENT,
                       "destination %p or source %p is null, with %llu bytes", destination, source,
                       static_cast<unsigned long long>(size));
    Transfer transfer;
    transfer.destination = static_cast<char*>(destination);
    transfer.source = static_cast<const char*>(source);
    transfer.destination_device = destination_device;
    transfer.source_device = source_device;
    transfer.size = size;
    return queueTransfer(stream, transfer, Function::peer_copy_async);
  });
}

}  // namespace

const flagos_hal_peer_api kPeerApi = {sizeof(kPeerApi), canAccess, enable, disable, copyAsync};

}  // namespace flagos::reference
