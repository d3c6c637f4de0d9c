// _C.compat: another device type's name for flagos, in operators and in the constructors of Python's types.
#include <pybind11/pybind11.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "csrc/bindings/bindings.h"
#include "csrc/ops/renamed_device.h"
#include "csrc/runtime/devices.h"

namespace py = pybind11;

namespace flagos {

namespace {

// Python's types whose constructors take a device, each with its own constructor; under the GIL.
std::map<PyTypeObject*, newfunc>& constructors() {
  static auto* found = new std::map<PyTypeObject*, newfunc>;
  return *found;
}

std::optional<c10::DeviceType> renamed;

py::object renamedDevice(py::handle value) {
  if (THPDevice_Check(value.ptr())) {
    const at::Device& device = reinterpret_cast<THPDevice*>(value.ptr())->device;
    if (device.type() != *renamed) return py::reinterpret_borrow<py::object>(value);
    return py::reinterpret_steal<py::object>(THPDevice_New(at::Device(kDeviceType, device.index())));
  }
  if (!PyUnicode_Check(value.ptr())) return py::reinterpret_borrow<py::object>(value);
  const auto text = py::cast<std::string_view>(value);
  const std::string name = c10::DeviceTypeName(*renamed, /*lower_case=*/true);
  const bool names_it =
      text.substr(0, name.size()) == name && (text.size() == name.size() || text[name.size()] == ':');
  if (!names_it) return py::reinterpret_borrow<py::object>(value);
  return py::str(c10::get_privateuse1_backend() + std::string(text.substr(name.size())));
}

PyObject* construct(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  newfunc original = nullptr;
  for (PyTypeObject* base = type; original == nullptr && base != nullptr; base = base->tp_base) {
    const auto found = constructors().find(base);
    if (found != constructors().end()) original = found->second;
  }
  if (original == nullptr) {
    PyErr_SetString(PyExc_SystemError, "flagos: the constructor was restored");
    return nullptr;
  }
  if (!renamed.has_value()) return original(type, args, kwargs);
  try {
    const auto given = py::reinterpret_borrow<py::tuple>(args);
    py::tuple positional(given.size());
    for (size_t i = 0; i < given.size(); ++i) positional[i] = renamedDevice(given[i]);
    py::dict named;
    if (kwargs != nullptr) {
      for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(kwargs))
        named[key] = renamedDevice(value);
    }
    return original(type, positional.ptr(), kwargs != nullptr ? named.ptr() : nullptr);
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  }
}

void rename(const std::string& type, const py::tuple& types) {
  const c10::DeviceType device_type = c10::Device(type).type();
  ops::renameDeviceType(device_type);
  renamed = device_type;
  for (const py::handle& item : types) {
    auto* python_type = reinterpret_cast<PyTypeObject*>(item.ptr());
    constructors().emplace(python_type, python_type->tp_new);
    python_type->tp_new = construct;
    PyType_Modified(python_type);
  }
}

void restore() {
  ops::restoreDeviceType();
  if (!renamed.has_value()) return;
  for (const auto& [type, constructor] : constructors()) {
    type->tp_new = constructor;
    PyType_Modified(type);
  }
  // Kept in the map: types derived meanwhile have inherited construct().
  torch::utils::set_requires_device_init(*renamed, true);
  renamed.reset();
}

}  // namespace

void bindCompat(py::module_& module) {
  auto submodule = module.def_submodule("compat", "Another device type's name for flagos.");
  submodule.def(
      "rename_device_type", torch::wrap_pybind_function(rename), py::arg("name"), py::arg("types"),
      "Let `name`, a device type without devices, mean flagos in operators and in the constructors of "
      "the Python types given.");
  submodule.def("restore_device_type", torch::wrap_pybind_function(restore), "Undo it.");
}

}  // namespace flagos
