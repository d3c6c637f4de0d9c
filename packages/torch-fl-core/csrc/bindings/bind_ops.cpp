// _C.ops: registration and counters of operators.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/ops/registration.h"
#include "csrc/ops/router.h"

namespace py = pybind11;

namespace flagos {

void bindOps(py::module_& module) {
  auto submodule = module.def_submodule("ops", "Operators of the flagos device: registration and counters.");
  // Registering is what loading the module is for: kernels must be there before the device gets its name.
  static const ops::RegistrationCounts registered = ops::registerOperators();
  submodule.def(
      "registered",
      [] { return py::dict(py::arg("hot") = registered.hot, py::arg("boxed") = registered.boxed); },
      "How many aten overloads got a kernel when the module was loaded: unboxed wrappers (hot) and by schema "
      "(boxed).");
  submodule.def(
      "counters",
      [] {
        py::list rows;
        for (const ops::OpCount& row : ops::callCounts()) {
          rows.append(py::make_tuple(row.op, ops::sourceName(row.source), row.calls, row.host_bytes));
        }
        return rows;
      },
      "List (operator, source, calls, bytes copied between host and device for it) since the start or the "
      "last reset.");
  submodule.def("reset_counters", &ops::resetCallCounts, "Set all counters to 0.");
}

}  // namespace flagos
