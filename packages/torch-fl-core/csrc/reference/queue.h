// Putting work into streams.
#pragma once

#include <cstddef>

#include "csrc/reference/stream.h"
#include "csrc/reference/work.h"

namespace flagos::reference {

// Appends all of `tasks` (moved from), or, where the stream's thread cannot be started, none. Holds that the
// tasks have stay with the caller on failure.
flagos_hal_status enqueue(Stream& stream, Task* tasks, size_t count);

// Checks and queues, or records, a copy or fill of any size.
flagos_hal_status queueTransfer(Stream& stream, const Transfer& transfer, Function function);

// A task with the correlation and the delays that apply to it now.
Task makeTask(decltype(Task::work) work, WorkKind kind, Function function);

// Lets the stream's thread finish what is queued and end. The stream can be used again afterwards.
void stopThread(Stream& stream) noexcept;

// Whether the calling thread is that of a stream.
bool onWorkerThread() noexcept;

}  // namespace flagos::reference
