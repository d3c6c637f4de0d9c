// Pinned memory: host memory that the stand-in knows.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace standin {

at::HostAllocator* pinnedAllocator() noexcept;
bool isPinned(const void* pointer) noexcept;
int64_t livePinnedBlocks();
int64_t pinnedUses();  // how often a block was recorded as used by a stream

}  // namespace standin
