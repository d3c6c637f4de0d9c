// The caching allocator of pinned host memory: at::HostAllocator over the HAL's group host.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Stream.h>

namespace flagos {

at::HostAllocator* hostAllocator() noexcept;

// Whether `pointer` lies in pinned memory of this allocator, or of a selected backend.
bool isPinned(const void* pointer);

// Keeps the block that holds `pointer` from reuse until `stream` has passed this point. True if it was one of ours.
bool recordPinnedUse(const void* pointer, c10::Stream stream);

void releaseAllHostMemory() noexcept;

}  // namespace flagos
