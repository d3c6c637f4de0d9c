// _C.generators: the devices' random generators.
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <cstdint>
#include <utility>

#include "csrc/bindings/bindings.h"
#include "csrc/runtime/devices.h"
#include "csrc/runtime/generator.h"

namespace py = pybind11;

namespace flagos {
namespace {

at::Generator defaultOf(int64_t device) { return defaultGenerator(checkedIndex(device)); }

std::pair<uint64_t, uint64_t> reserve(const at::Generator& generator, uint64_t count) {
  return generatorFor(generator, generator.device().index()).reserve(count);
}

}  // namespace

void bindGenerator(py::module_& parent) {
  py::module_ m = parent.def_submodule("generators", "Random generators.");
  m.def("default_generator", torch::wrap_pybind_function(defaultOf), py::arg("device") = -1,
        "The default generator of a device; −1: of the current one.");
  m.def(
      "seed_all", torch::wrap_pybind_function_no_gil(seedAll), py::arg("seed"),
      "Seed the default generators of all devices, also of those that do not exist yet. Activates nothing.");
  m.def("reserve", torch::wrap_pybind_function_no_gil(reserve), py::arg("generator"), py::arg("count"),
        "Take `count` numbers, rounded up to a multiple of 4, out of a generator's stream; (seed, offset of "
        "the first).");
}

}  // namespace flagos
