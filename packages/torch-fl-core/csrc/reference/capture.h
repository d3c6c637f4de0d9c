// Placeholder for the first build.
#pragma once
#include "csrc/reference/status.h"
namespace flagos::reference {
struct Stream;
inline flagos_hal_status refuseDuringCapture(const char*) { return kOk; }
inline flagos_hal_status refuseCapturing(Stream&, const char*) { return kOk; }
}
