// Makes a device current for a scope and puts the former one back (GEN-06), for runtimes that act on "the
// current device".
#pragma once

#include "flagos/hal_support/error.hpp"

namespace flagos {
namespace hal_support __attribute__((visibility("hidden"))) {

  // `Runtime` has static flagos_hal_status getCurrent(int32_t*) and setCurrent(int32_t).
  //
  //   DeviceSwitch<Vendor> on(device);
  //   FLAGOS_HAL_TRY(on.status());
  template <typename Runtime>
  class DeviceSwitch {
   public:
    explicit DeviceSwitch(int32_t device) noexcept {
      status_ = Runtime::getCurrent(&before_);
      if (status_ != FLAGOS_HAL_STATUS_OK || before_ == device) return;
      status_ = Runtime::setCurrent(device);
      switched_ = status_ == FLAGOS_HAL_STATUS_OK;
    }
    // A failure to go back cannot be told from here; the thread's next set_current tells it.
    ~DeviceSwitch() {
      if (switched_) static_cast<void>(Runtime::setCurrent(before_));
    }
    DeviceSwitch(const DeviceSwitch&) = delete;
    DeviceSwitch& operator=(const DeviceSwitch&) = delete;

    flagos_hal_status status() const noexcept { return status_; }

   private:
    int32_t before_ = 0;
    bool switched_ = false;
    flagos_hal_status status_ = FLAGOS_HAL_STATUS_OK;
  };

}  // namespace hal_support
}  // namespace flagos
