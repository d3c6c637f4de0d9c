// Detection of fork(): private to the runtime.
#pragma once

namespace flagos::detail {

// A backend was initialised (+1) or shut down (−1). While any is initialised, a child forked cannot use the
// devices.
void noteInitialised(int change) noexcept;

// Lives while backends are being opened: a child forked by another thread meanwhile is as bad as one forked
// after.
class OpeningMark {
 public:
  OpeningMark() noexcept;
  ~OpeningMark();
  OpeningMark(const OpeningMark&) = delete;
  OpeningMark& operator=(const OpeningMark&) = delete;
};

// Called in the child, which has one thread: makes the locks of devices.cpp usable again.
void renewLocksAfterFork() noexcept;

}  // namespace flagos::detail
