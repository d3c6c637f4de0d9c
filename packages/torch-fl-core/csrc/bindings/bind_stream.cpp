// _C.streams: what torch.Stream and torch.Event do not offer themselves. A stream is the pair (stream id,
// device index).
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "csrc/bindings/bindings.h"
#include "csrc/runtime/devices.h"
#include "csrc/runtime/stream.h"

namespace py = pybind11;

namespace flagos {
namespace {

using Pair = std::pair<int64_t, int>;

Pair toPair(const c10::Stream& stream) { return {stream.id(), static_cast<int>(stream.device_index())}; }

c10::Stream toStream(int64_t id, int64_t device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, resolveIndex(checkedIndex(device))), id);
}

// PyTorch's own order of priorities: lower is more urgent; any integer is clamped.
int clampedPriority(int64_t priority) {
  return static_cast<int>(
      std::clamp<int64_t>(priority, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
}

}  // namespace

void bindStream(py::module_& parent) {
  py::module_ m = parent.def_submodule("streams", "Streams beyond torch.Stream.");
  m.def("current_stream", torch::wrap_pybind_function_no_gil([](int64_t device) {
          return toPair(currentStream(checkedIndex(device)));
        }),
        py::arg("device") = -1,
        "The calling thread's current stream of a device; −1: of the current device.");
  m.def("default_stream", torch::wrap_pybind_function_no_gil([](int64_t device) {
          return toPair(defaultStream(checkedIndex(device)));
        }),
        py::arg("device") = -1, "The default stream of a device.");
  m.def("set_current_stream", torch::wrap_pybind_function_no_gil([](int64_t id, int64_t device) {
          setCurrentStream(toStream(id, device));
        }),
        py::arg("stream_id"), py::arg("device"),
        "Make a stream current on the calling thread; the current device stays.");
  m.def("new_stream", torch::wrap_pybind_function_no_gil([](int64_t device, int64_t priority) {
          return toPair(newStream(checkedIndex(device), clampedPriority(priority)));
        }),
        py::arg("device") = -1, py::arg("priority") = 0,
        "A stream from the pool of that priority; lower is more urgent.");
  m.def(
      "external_stream", torch::wrap_pybind_function_no_gil([](uintptr_t hal_stream, int64_t device) {
        return toPair(externalStream(reinterpret_cast<flagos_hal_stream*>(hal_stream), checkedIndex(device)));
      }),
      py::arg("hal_stream"), py::arg("device") = -1,
      "Take over a flagos_hal_stream made elsewhere, which stays alive.");
  m.def("hal_handle", torch::wrap_pybind_function_no_gil([](int64_t id, int64_t device) {
          return reinterpret_cast<uintptr_t>(streamHandle(toStream(id, device)));
        }),
        py::arg("stream_id"), py::arg("device"), "The flagos_hal_stream behind a stream, as an integer.");
  m.def("native_handle", torch::wrap_pybind_function_no_gil([](int64_t id, int64_t device) {
          return reinterpret_cast<uintptr_t>(nativeHandle(toStream(id, device)));
        }),
        py::arg("stream_id"), py::arg("device"),
        "The vendor's own handle of a stream, as an integer; 0 for a null one.");
  m.def("priority", torch::wrap_pybind_function_no_gil([](int64_t id, int64_t device) {
          return streamPriority(toStream(id, device));
        }),
        py::arg("stream_id"), py::arg("device"), "The priority that a stream was made with.");
  m.def("priority_range", torch::wrap_pybind_function_no_gil([](int64_t device) {
          return streamPriorityRange(checkedIndex(device));
        }),
        py::arg("device") = -1, "(least, greatest) priority; least ≥ 0 ≥ greatest.");
}

}  // namespace flagos
