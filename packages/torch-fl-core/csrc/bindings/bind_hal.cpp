// _C.hal: opens a HAL library by hand, with or without layers, beside those that the runtime uses. For tests
// and tools.
#include <pybind11/stl.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/bindings/bindings.h"
#include "csrc/hal/library.h"
#include "csrc/hal/members.h"

namespace py = pybind11;

namespace flagos {
namespace {

const char* kindName(hal::LoadError::Kind kind) {
  switch (kind) {
    case hal::LoadError::Kind::NotFound:
      return "not found";
    case hal::LoadError::Kind::NotALibrary:
      return "not a library";
    case hal::LoadError::Kind::NoEntryPoint:
      return "no entry point";
    case hal::LoadError::Kind::AbiRefused:
      return "ABI refused";
    case hal::LoadError::Kind::BadTable:
      return "bad table";
    case hal::LoadError::Kind::InitFailed:
      return "init failed";
  }
  return "?";
}

template <typename Function>
uintptr_t addressOf(Function function) {
  uintptr_t address;
  static_assert(sizeof(address) == sizeof(function), "POSIX: a function's address fits a data pointer");
  std::memcpy(&address, &function, sizeof(address));
  return address;
}

// Every function of the tables by "group.member", as the address to call: ctypes can then drive it through
// the layers.
std::map<std::string, uintptr_t> functionsOf(const hal::Library& library) {
  const hal::Tables& tables = library.tables();
  std::map<std::string, uintptr_t> functions;
#define FLAGOS_HAL_MEMBER(group, member, need, since, before_init, id, parameters) \
  functions[#group "." #member] = addressOf(tables.group.member);
#include "flagos/hal_members.def"
  return functions;
}

std::vector<std::string> optionalGroupsOf(const hal::Library& library) {
  const hal::Tables& tables = library.tables();
  const std::pair<const char*, bool> groups[] = {
      {"host", tables.has_host},   {"peer", tables.has_peer},   {"ipc", tables.has_ipc},
      {"graph", tables.has_graph}, {"trace", tables.has_trace}, {"async_alloc", tables.has_async_alloc}};
  std::vector<std::string> present;
  for (const auto& [name, has] : groups) {
    if (has) present.emplace_back(name);
  }
  return present;
}

py::list members() {
  py::list all;
  for (const hal::MemberInfo& info : hal::kMembers) {
    py::dict entry;
    entry["name"] = info.name;
    entry["id"] = info.id;
    entry["required"] = info.need == hal::Need::REQUIRED;
    entry["since"] = info.since;
    all.append(std::move(entry));
  }
  return all;
}

// LoadError(RuntimeError) with the attribute `kind`. The class lives as long as the interpreter.
PyObject* makeLoadError(py::module_& m) {
  PyObject* type = PyErr_NewExceptionWithDoc(
      "torch_fl._C.hal.LoadError",
      "A HAL library could not be used; `kind` says which way, the text why and what to do.",
      PyExc_RuntimeError, nullptr);
  if (!type) throw py::error_already_set();
  m.attr("LoadError") = py::handle(type);
  return type;
}

PyObject* load_error = nullptr;

void raiseLoadError(const hal::LoadError& error) {
  py::object value = py::handle(load_error)(error.what());
  value.attr("kind") = kindName(error.kind());
  PyErr_SetObject(load_error, value.ptr());
}

std::shared_ptr<hal::Library> openLibrary(const std::string& name, const std::string& path, bool private_copy,
                                          bool validate, bool trace, const std::string& trace_path,
                                          bool log_violations) {
  hal::OpenOptions options;
  options.private_copy = private_copy;
  options.validate = validate;
  options.log_violations = log_violations;
  options.trace = trace;
  options.trace_path = trace_path;
  const py::gil_scoped_release released;  // loading runs the library's own initialisers
  return hal::Library::open(name, path, options);
}

}  // namespace

void bindHal(py::module_& parent) {
  py::module_ m = parent.def_submodule("hal", "HAL libraries opened by hand, for tests and tools.");
  load_error = makeLoadError(m);
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const hal::LoadError& error) {
      raiseLoadError(error);
    }
  });
  py::class_<hal::Library, std::shared_ptr<hal::Library>>(m, "Library",
                                                          "An open HAL library; open() makes it.")
      .def_property_readonly("name", &hal::Library::name, "The backend's name it was opened under.")
      .def_property_readonly("path", &hal::Library::path, "The file.")
      .def_property_readonly(
          "abi", [](const hal::Library& self) { return std::make_pair(self.abiMajor(), self.abiMinor()); },
          "(major, minor) of the HAL ABI that the library was compiled with.")
      .def_property_readonly("violations", &hal::Library::violations,
                             "What the validating layer has found so far.")
      .def_property_readonly("optional_groups", &optionalGroupsOf,
                             "Names of the optional groups that it has.")
      .def_property_readonly("functions", &functionsOf,
                             "Address of each function by \"group.member\", through the layers; none is 0.")
      .def(
          "describe_failure",
          [](const hal::Library& self, int32_t status) {
            return hal::describeFailure(self.tables(), self.name(), status);
          },
          py::arg("status"), "One line on the calling thread's last failure, which had this status.");
  m.def("open", &openLibrary, py::arg("name"), py::arg("path"), py::kw_only(),
        py::arg("private_copy") = false, py::arg("validate") = false, py::arg("trace") = false,
        py::arg("trace_path") = "", py::arg("log_violations") = true,
        "Open a HAL library and negotiate the ABI; calls nothing but its query. Raises LoadError.");
  m.def("members", &members,
        "The functions of the HAL's tables: dicts of name, id, required, since (minor of ABI 1).");
  m.def("status_name", &hal::statusName, py::arg("status"),
        "\"OUT_OF_MEMORY\"; \"?\" for a number that is no status.");
  m.def("status_text", &hal::statusText, py::arg("status"), "What a status means, in words.");
}

}  // namespace flagos
