// The parts of the Python module torch_fl._C: one function per subject, each in its bind_<subject>.cpp,
// called once by module.cpp. Each makes its submodule of the name given here (m.def_submodule) and fills it.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace flagos {

void bindDevices(pybind11::module_& m);    // _C.devices
void bindStream(pybind11::module_& m);     // _C.streams
void bindGenerator(pybind11::module_& m);  // _C.generators
void bindMemory(pybind11::module_& m);     // _C.memory
void bindHal(pybind11::module_& m);        // _C.hal
void bindOps(pybind11::module_& m);        // _C.ops
void bindRoutes(pybind11::module_& m);     // _C.routes
void bindCompat(pybind11::module_& m);     // _C.compat

}  // namespace flagos
