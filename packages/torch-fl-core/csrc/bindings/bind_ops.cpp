// _C.ops: registration and counters of operators.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include "csrc/bindings/bindings.h"
#include "csrc/ops/autograd_workers.h"
#include "csrc/ops/companion_views.h"
#include "csrc/ops/counters.h"
#include "csrc/ops/registration.h"
#include "csrc/ops/router.h"

namespace py = pybind11;

namespace flagos {

void bindOps(py::module_& module) {
  auto submodule = module.def_submodule("ops", "Operators of the flagos device: registration and counters.");
  ops::registerOperatorsOnActivation();
  submodule.def(
      "register", [] { ops::registerOperators(); },
      "Register all kernels now, and not only when a device is first used.");
  submodule.def(
      "registered",
      [] {
        const ops::RegistrationCounts& counts = ops::registerOperators();
        return py::dict(py::arg("hot") = counts.hot, py::arg("boxed") = counts.boxed);
      },
      "How many aten overloads have a kernel: unboxed wrappers (hot) and by schema (boxed).");
  submodule.def(
      "counters",
      [] {
        py::list rows;
        for (const ops::OpCount& row : ops::callCounts()) {
          rows.append(py::make_tuple(row.op, ops::sourceName(row.source), int{row.device}, row.calls,
                                     row.host_bytes, row.nanoseconds));
        }
        return rows;
      },
      "List (operator, source, device, calls, bytes copied between host and device for it, nanoseconds while "
      "timing was on) since the start or the last reset.");
  submodule.def(
      "set_timing", [](bool on) { ops::watch(ops::Watch::Timing, on); }, py::arg("on"),
      "Measure how long each call takes the host; costs every call a little.");
  submodule.def(
      "settle_autograd", torch::wrap_pybind_function_no_gil([] { return ops::settleAutogradWorkers(); }),
      "Wait until autograd's workers have left all backward passes; False if that cannot be known.");
  submodule.def("as_companion", torch::wrap_pybind_function(ops::asCompanion), py::arg("tensor"),
                "A tensor of the companion's device type over the memory of a flagos tensor.");
  submodule.def("from_companion", torch::wrap_pybind_function(ops::fromCompanion), py::arg("tensor"),
                "A flagos tensor over the memory of a tensor of the companion.");
  submodule.def("reset_counters", &ops::resetCallCounts, "Set all counters to 0.");
}

}  // namespace flagos
