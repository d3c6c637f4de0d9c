// _C.devices: backends, devices, the current device, start and end of the runtime.
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/bindings/bindings.h"
#include "csrc/runtime/companion.h"
#include "csrc/runtime/device_properties.h"
#include "csrc/runtime/devices.h"
#include "csrc/runtime/settings.h"
#include "csrc/runtime/stream.h"

namespace py = pybind11;

namespace flagos {
namespace {

BackendRequest toRequest(const py::dict& entry) {
  static const std::vector<std::string> kKeys = {"name",        "path",      "private_copy", "emulated",
                                                 "accelerator", "companion", "skip"};
  for (const auto& item : entry) {
    const auto key = item.first.cast<std::string>();
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      throw py::key_error("flagos: a backend request has the unknown key '" + key +
                          "'; known: name, path, private_copy, emulated, accelerator, companion, skip");
    }
  }
  if (!entry.contains("name") || !entry.contains("path")) {
    throw py::key_error("flagos: a backend request needs the keys 'name' and 'path'");
  }
  BackendRequest request;
  request.name = entry["name"].cast<std::string>();
  request.path = entry["path"].cast<std::string>();
  if (entry.contains("private_copy")) request.private_copy = entry["private_copy"].cast<bool>();
  if (entry.contains("emulated")) request.emulated = entry["emulated"].cast<bool>();
  if (entry.contains("accelerator")) request.accelerator = entry["accelerator"].cast<bool>();
  if (entry.contains("companion")) request.companion = entry["companion"].cast<std::string>();
  if (entry.contains("skip")) request.skip = entry["skip"].cast<std::string>();
  return request;
}

py::object textOrNone(const char* text) {
  if (text == nullptr || *text == '\0') return py::none();
  return py::str(text);
}

const char* hostAccessName(int64_t access) {
  if (access == FLAGOS_HAL_HOST_ACCESS_COHERENT) return "coherent";
  return access == FLAGOS_HAL_HOST_ACCESS_MANAGED ? "managed" : "none";
}

// Versions and SDK path, as the library tells them; None for what it does not.
void addInfo(py::dict& out, const hal::Library* library) {
  flagos_hal_info info{};
  info.struct_size = sizeof(info);
  const bool known = library != nullptr && library->tables().system.info(&info) == FLAGOS_HAL_STATUS_OK;
  out["library_version"] = known ? textOrNone(info.library_version) : py::none();
  out["sdk_version"] = known ? textOrNone(info.sdk_version) : py::none();
  out["driver_version"] = known ? textOrNone(info.driver_version) : py::none();
  out["sdk_path"] = known ? textOrNone(info.sdk_path) : py::none();
}

py::dict toDict(const BackendRecord& record) {
  py::dict out;
  out["name"] = record.request.name;
  out["path"] = record.request.path;
  out["private_copy"] = record.request.private_copy;
  out["emulated"] = record.request.emulated;
  out["state"] = backendStateName(record.state);
  out["reason"] = record.reason;
  out["first_device"] = record.first_device;
  out["device_count"] = record.device_count;
  out["companion"] = record.companion == nullptr ? py::object(py::none()) : py::str(record.companion->name);
  out["companion_reason"] = record.companion_reason;
  out["host_access"] = hostAccessName(record.host_access);
  out["alignment"] = record.alignment;
  out["async_streams"] = record.async_streams;
  out["abi"] = py::none();
  if (record.library) out["abi"] = py::make_tuple(record.library->abiMajor(), record.library->abiMinor());
  addInfo(out, record.library.get());
  return out;
}

template <typename T>
py::object numberOrNone(T value) {
  if (value == FLAGOS_HAL_UNKNOWN) return py::none();
  return py::int_(value);
}

py::object uuidOrNone(const uint8_t (&uuid)[16]) {
  bool known = false;
  for (const uint8_t byte : uuid) known = known || byte != 0;
  if (!known) return py::none();
  return py::bytes(reinterpret_cast<const char*>(uuid), sizeof(uuid));
}

py::dict propertiesDict(int64_t device) {
  flagos_hal_device_properties properties{};
  const DeviceEntry* entry = nullptr;
  {
    py::gil_scoped_release no_gil;
    entry = &deviceEntry(resolveIndex(checkedIndex(device)));
    properties = deviceProperties(entry->index);
  }
  py::dict out;
  out["name"] = py::str(properties.name);
  out["backend"] = entry->backend->request.name;
  out["local_index"] = entry->local;
  out["arch"] = textOrNone(properties.arch);
  out["pci_bus_id"] = textOrNone(properties.pci_bus_id);
  out["uuid"] = uuidOrNone(properties.uuid);
  out["total_memory"] = numberOrNone(properties.total_memory);
  out["capability_major"] = numberOrNone(properties.capability_major);
  out["capability_minor"] = numberOrNone(properties.capability_minor);
  out["multiprocessor_count"] = numberOrNone(properties.multiprocessor_count);
  out["warp_size"] = numberOrNone(properties.warp_size);
  out["max_threads_per_block"] = numberOrNone(properties.max_threads_per_block);
  out["max_threads_per_multiprocessor"] = numberOrNone(properties.max_threads_per_multiprocessor);
  out["registers_per_multiprocessor"] = numberOrNone(properties.registers_per_multiprocessor);
  out["clock_rate_khz"] = numberOrNone(properties.clock_rate_khz);
  out["shared_memory_per_block"] = numberOrNone(properties.shared_memory_per_block);
  out["shared_memory_per_block_optin"] = numberOrNone(properties.shared_memory_per_block_optin);
  out["shared_memory_per_multiprocessor"] = numberOrNone(properties.shared_memory_per_multiprocessor);
  out["l2_cache_size"] = numberOrNone(properties.l2_cache_size);
  out["is_integrated"] =
      properties.is_integrated < 0 ? py::object(py::none()) : py::bool_(properties.is_integrated != 0);
  out["dtypes"] = py::none();
  if (const auto types = deviceDtypes(properties)) {
    py::list names;
    for (const c10::ScalarType type : *types) {
      names.append(py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(type))));
    }
    out["dtypes"] = names;
  }
  addInfo(out, entry->backend->library.get());
  return out;
}

bool canAccessPeer(int64_t device, int64_t peer) {
  const DeviceEntry& first = deviceEntry(resolveIndex(checkedIndex(device)));
  const DeviceEntry& second = deviceEntry(resolveIndex(checkedIndex(peer)));
  if (first.backend != second.backend || !first.backend->library->tables().has_peer) return false;
  int32_t yes = 0;
  FLAGOS_CHECK(first, first.hal->peer.can_access(first.local, second.local, &yes), "ask for peer access");
  return yes != 0;
}

// Empty while the device can be used.
std::string healthOf(int64_t device) {
  const DeviceEntry& entry = deviceEntry(resolveIndex(checkedIndex(device)));
  const flagos_hal_status status = entry.hal->device.health(entry.local);
  if (status == FLAGOS_HAL_STATUS_OK) return {};
  return hal::describeFailure(*entry.hal, entry.backend->request.name, status);
}

void bindBackends(py::module_& m) {
  m.def("configure", torch::wrap_pybind_function([](std::unordered_map<std::string, std::string> settings) {
          configure(std::move(settings));
        }),
        py::arg("settings"),
        "Hand the values of the FLAGOS_ variables to the runtime; only before the first use.");
  m.def("set_backend_requests", torch::wrap_pybind_function([](const std::vector<py::dict>& entries) {
          std::vector<BackendRequest> requests;
          for (const py::dict& entry : entries) requests.push_back(toRequest(entry));
          setBackendRequests(std::move(requests));
        }),
        py::arg("requests"),
        "Replace the list of backends. Keys: name, path, private_copy, emulated, accelerator, companion, "
        "skip. Opens nothing.");
  m.def("backend_records", torch::wrap_pybind_function([] {
          py::list out;
          for (const BackendRecord& record : backendRecords()) out.append(toDict(record));
          return out;
        }),
        "One dict per request, with state and reason so far.");
  m.def("allow_emulated", &allowEmulated,
        "From now on device_count opens emulated backends too, where no other has a device.");
  m.def("activate", torch::wrap_pybind_function_no_gil([] { return static_cast<int>(activate()); }),
        "Open and initialise the backends; the number of devices. Raises with every candidate's reason if "
        "none has one.");
  m.def("activated", &activated, "Whether devices are open.");
  m.def("device_count", torch::wrap_pybind_function_no_gil([] { return static_cast<int>(deviceCount()); }),
        "Number of devices; opens backends that are not emulated. Never raises.");
  m.def("in_bad_fork", &inBadFork, "Whether this process was forked from one that had opened the devices.");
  m.def("throw_if_bad_fork", torch::wrap_pybind_function([] { throwIfBadFork(); }),
        "Raise the sentence that names the cure if in_bad_fork().");
  m.def("shutdown", torch::wrap_pybind_function_no_gil([] { shutdownRuntime(); }),
        "Wait for all devices and shut the backends down. For atexit: afterwards releases do nothing and "
        "uses raise.");
  m.def("is_shut_down", &isShutDown, "Whether shutdown was called.");
}

}  // namespace

void bindDevices(py::module_& parent) {
  py::module_ m = parent.def_submodule("devices", "Backends and their devices.");
  bindBackends(m);
  // torch.accelerator.synchronize does nothing until torch believes that the device was initialised, and
  // torch believes so only from the first factory call on. Streams may have work before that.
  onActivation([] { torch::utils::set_requires_device_init(kDeviceType, false); });
  m.def(
      "current_device", [] { return static_cast<int>(currentDevice()); },
      "The calling thread's current device; activates nothing.");
  m.def("set_device",
        torch::wrap_pybind_function_no_gil([](int64_t index) { setDevice(checkedIndex(index)); }),
        py::arg("index"), "Make a device current on the calling thread; −1 leaves it.");
  m.def("exchange_device", torch::wrap_pybind_function_no_gil([](int64_t index) {
          return static_cast<int>(exchangeDevice(checkedIndex(index)));
        }),
        py::arg("index"), "Make a device current on the calling thread, −1 leaves it; the one before.");
  m.def("synchronize",
        torch::wrap_pybind_function_no_gil([](int64_t index) { synchronizeDevice(checkedIndex(index)); }),
        py::arg("index") = -1, "Wait until all work queued on the device has finished; −1: the current one.");
  m.def("properties", torch::wrap_pybind_function(propertiesDict), py::arg("index") = -1,
        "The HAL's properties of a device; None for what the vendor does not tell.");
  m.def("can_access_peer", torch::wrap_pybind_function_no_gil(canAccessPeer), py::arg("device"),
        py::arg("peer"), "Whether kernels of `device` can address memory of `peer`; False between backends.");
  m.def("health", torch::wrap_pybind_function_no_gil(healthOf), py::arg("index") = -1,
        "Empty while the device can be used, else why not. Waits for nothing.");
}

}  // namespace flagos
