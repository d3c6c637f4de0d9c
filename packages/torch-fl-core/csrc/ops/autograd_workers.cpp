#include "csrc/ops/autograd_workers.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <exception>
#include <thread>

#include "csrc/runtime/devices.h"

namespace flagos::ops {

namespace {

void backwardOn(c10::DeviceIndex device) {
  const at::Tensor leaf =
      at::zeros({}, at::TensorOptions().device(c10::Device(kDeviceType, device))).requires_grad_(true);
  leaf.clone().backward();
}

}  // namespace

// A worker takes its tasks in order, so that a small backward pass of our own ends after all others. It runs
// in a fresh thread: a graph task keeps the thread-local state of its caller, Python objects among it, and
// its worker needs the GIL to destroy them. A fresh thread has none, and these tensors are unknown to Python.
bool settleAutogradWorkers() noexcept {
  bool settled = true;
  try {
    std::thread([&settled] {
      try {
        const c10::AutoGradMode enabled(true);
        for (c10::DeviceIndex device = 0; device < deviceCount(); ++device) {
          if (deviceInUse(device)) backwardOn(device);
        }
      } catch (const std::exception&) {
        settled = false;
      }
    }).join();
  } catch (const std::exception&) {  // no thread is to be had
    settled = false;
  }
  return settled;
}

}  // namespace flagos::ops
