// _C.routes: which source serves an operator, and changing it while the program runs.
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "csrc/bindings/bindings.h"
#include "csrc/ops/counters.h"
#include "csrc/ops/fallback_policy.h"
#include "csrc/ops/registration.h"
#include "csrc/ops/route_check.h"
#include "csrc/ops/routed_kernel.h"
#include "csrc/ops/router.h"
#include "csrc/ops/source_kernels.h"

namespace py = pybind11;

namespace flagos {
namespace {

using ops::Candidate;
using ops::Candidates;
using ops::Condition;
using ops::Routes;
using ops::Source;

Source toSource(const std::string& name) {
  const std::optional<Source> source = ops::sourceOf(name);
  TORCH_CHECK_VALUE(source.has_value(), "flagos: there is no source '", name, "'");
  return *source;
}

c10::ScalarType toDtype(const std::string& name) {
  for (int8_t i = 0; i < static_cast<int8_t>(c10::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<c10::ScalarType>(i);
    const auto names = c10::getDtypeNames(type);
    if (name == names.first || name == names.second) return type;
  }
  TORCH_CHECK_VALUE(false, "flagos: there is no dtype '", name, "'");
}

// A value or a list of them, as a list.
py::list asList(const py::handle& value) {
  if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value))
    return py::list(py::reinterpret_borrow<py::object>(value));
  py::list one;
  one.append(value);
  return one;
}

void readRange(ops::Range& range, const py::dict& from, const char* min, const char* max) {
  if (from.contains(min)) range.min = from[min].cast<int64_t>();
  if (from.contains(max)) range.max = from[max].cast<int64_t>();
}

ops::ArgumentCondition::Value toValue(const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::int_>(value)) return value.cast<int64_t>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  return value.cast<std::string>();
}

ops::ArgumentCondition toArgumentCondition(const py::handle& value) {
  ops::ArgumentCondition condition;
  if (!py::isinstance<py::dict>(value)) {
    for (const auto& item : asList(value)) condition.one_of.push_back(toValue(item));
    return condition;
  }
  const auto bounds = py::reinterpret_borrow<py::dict>(value);
  if (bounds.contains("min")) condition.min = bounds["min"].cast<double>();
  if (bounds.contains("max")) condition.max = bounds["max"].cast<double>();
  if (bounds.contains("min_len") || bounds.contains("max_len")) {
    condition.length.emplace();
    readRange(*condition.length, bounds, "min_len", "max_len");
  }
  return condition;
}

ops::ConditionPtr toCondition(const py::dict& when) {
  auto condition = std::make_shared<Condition>();
  condition->text = py::repr(when).cast<std::string>();
  if (when.contains("dtype")) {
    for (const auto& name : asList(when["dtype"]))
      condition->dtypes.push_back(toDtype(name.cast<std::string>()));
  }
  if (when.contains("rank")) condition->rank.min = condition->rank.max = when["rank"].cast<int64_t>();
  readRange(condition->rank, when, "min_rank", "max_rank");
  readRange(condition->numel, when, "min_numel", "max_numel");
  if (when.contains("last_dim")) {
    const auto bounds = when["last_dim"].cast<py::dict>();
    readRange(condition->last_dim, bounds, "min", "max");
    if (bounds.contains("multiple_of"))
      condition->last_dim.multiple_of = bounds["multiple_of"].cast<int64_t>();
  }
  if (when.contains("contiguous")) condition->contiguous = when["contiguous"].cast<bool>();
  if (when.contains("zero_size")) condition->zero_size = when["zero_size"].cast<bool>();
  if (when.contains("devices")) {
    for (const auto& index : asList(when["devices"])) condition->devices.push_back(index.cast<int64_t>());
  }
  if (when.contains("args")) {
    for (const auto& [name, value] : when["args"].cast<py::dict>())
      condition->arguments.emplace(name.cast<std::string>(), toArgumentCondition(value));
  }
  return condition;
}

Candidates toCandidates(const py::handle& list) {
  Candidates candidates;
  if (list.is_none()) return candidates;
  for (const auto& item : list) {
    const auto entry = item.cast<py::dict>();
    Candidate candidate;
    candidate.source = toSource(entry["source"].cast<std::string>());
    if (entry.contains("on_error") && entry["on_error"].cast<std::string>() == "next")
      candidate.on_error = ops::OnError::Next;
    if (entry.contains("when") && !entry["when"].is_none()) {
      const auto when = entry["when"].cast<py::dict>();
      if (!when.empty()) candidate.when = toCondition(when);
    }
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

Routes toRoutes(const py::dict& routes) {
  Routes out;
  for (const auto& [name, list] : routes) out.emplace(name.cast<std::string>(), toCandidates(list));
  return out;
}

const ops::OpRecord& recordNamed(const std::string& name) {
  const auto id = ops::findOpId(name);
  const ops::OpRecord* record = id.has_value() ? ops::recordOf(*id) : nullptr;
  TORCH_CHECK_VALUE(record != nullptr, "flagos: no operator '", name, "' is routed");
  return *record;
}

int slotOf(const std::string& backend) {
  const std::vector<std::string> names = ops::routedBackends();
  const auto found = std::find(names.begin(), names.end(), backend);
  TORCH_CHECK_VALUE(found != names.end(), "flagos: there is no backend '", backend,
                    "' with devices in this process");
  return static_cast<int>(found - names.begin());
}

const DeviceEntry& firstDeviceOf(const std::string& backend) {
  const int slot = slotOf(backend);
  for (c10::DeviceIndex i = 0; i < deviceCount(); ++i) {
    if (deviceEntry(i).slot == slot) return deviceEntry(i);
  }
  TORCH_INTERNAL_ASSERT(false);
}

// A number where the operator takes a tensor, as torch's own functions allow.
py::object asTensor(const c10::FunctionSchema& schema, size_t index, py::object value) {
  if (index >= schema.arguments().size()) return value;
  const bool wanted = schema.arguments()[index].type()->kind() == c10::TypeKind::TensorType;
  const bool number = py::isinstance<py::int_>(value) || py::isinstance<py::float_>(value);
  return wanted && number ? py::module_::import("torch").attr("scalar_tensor")(value) : value;
}

py::tuple asTensors(const c10::FunctionSchema& schema, const py::tuple& args) {
  py::list out;
  for (size_t i = 0; i < args.size(); ++i)
    out.append(asTensor(schema, i, py::reinterpret_borrow<py::object>(args[i])));
  return py::tuple(out);
}

// What the route would do with a call, without making it.
py::dict decide(const std::string& name, const std::string& backend, const py::tuple& args,
                const py::kwargs& kwargs) {
  const ops::OpRecord& record = recordNamed(name);
  torch::jit::Stack stack;
  const bool with_call = !args.empty() || !kwargs.empty();
  if (with_call)
    stack = torch::jit::createStackForSchema(record.op.schema(),
                                             torch::jit::tuple_slice(asTensors(record.op.schema(), args)),
                                             kwargs, std::nullopt);
  const DeviceEntry& device = with_call ? ops::deviceOfCall(record, stack.data()) : firstDeviceOf(backend);
  const at::Tensor first = with_call ? ops::firstDeviceTensor(record, stack.data()) : at::Tensor();
  const ops::Route found = ops::route(record.id, device);
  py::list rows;
  std::string chosen;
  for (const Candidate& candidate : ops::candidatesOf(found)) {
    std::string state = "not reached";
    if (chosen.empty()) {
      std::string unmet;
      if (candidate.when != nullptr)
        unmet = with_call ? candidate.when->unmet(record.op.schema(), stack.data(), first, device.local)
                          : "depends on the call: " + candidate.when->text;
      state = unmet.empty() ? "chosen" : with_call ? "declined by condition: " + unmet : unmet;
      if (unmet.empty()) chosen = ops::sourceName(candidate.source);
    }
    rows.append(py::dict(py::arg("source") = ops::sourceName(candidate.source), py::arg("state") = state));
  }
  return py::dict(py::arg("source") = chosen, py::arg("candidates") = rows,
                  py::arg("backend") = device.backend->request.name, py::arg("device") = device.index);
}

// Calls a Python function with an operator's arguments. NotImplemented declines.
ops::SourceKernel pythonKernel(py::function function) {
  // Kept for the life of the process, as kernels are.
  PyObject* callable = function.release().ptr();
  return [callable](const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const py::gil_scoped_acquire gil;
    const c10::FunctionSchema& schema = op.schema();
    const size_t count = schema.arguments().size();
    const size_t base = stack->size() - count;
    py::list positional;
    py::dict named;
    for (size_t i = 0; i < count; ++i) {
      py::object value = torch::jit::toPyObject((*stack)[base + i]);
      if (schema.arguments()[i].kwarg_only()) {
        named[schema.arguments()[i].name().c_str()] = std::move(value);
      } else {
        positional.append(std::move(value));
      }
    }
    const py::object result = py::reinterpret_borrow<py::function>(callable)(*py::tuple(positional), **named);
    if (result.ptr() == Py_NotImplemented) return false;
    torch::jit::Stack returned;
    const auto& returns = schema.returns();
    if (returns.size() == 1) {
      returned.push_back(torch::jit::toIValue(result, returns[0].type()));
    } else if (!returns.empty()) {
      const auto values = result.cast<py::tuple>();
      TORCH_CHECK(values.size() == returns.size(), "flagos: the Python source of ", op.operator_name(),
                  " returned ", values.size(), " values; the operator returns ", returns.size(), ".");
      for (size_t i = 0; i < returns.size(); ++i)
        returned.push_back(torch::jit::toIValue(values[i], returns[i].type()));
    }
    torch::jit::drop(*stack, count);
    for (c10::IValue& value : returned) stack->push_back(std::move(value));
    return true;
  };
}

void registerKernel(const std::string& source, const std::string& op,
                    const std::optional<std::string>& backend, ops::SourceKernel kernel) {
  const Source which = toSource(source);
  TORCH_CHECK_VALUE(which != Source::Cpu && which != Source::Boxed, "flagos: the source '", source,
                    "' takes its kernels from PyTorch; none is registered for it");
  ops::registerSourceKernel(which, recordNamed(op).id, backend.has_value() ? slotOf(*backend) : -1,
                            std::move(kernel));
  ops::capabilitiesChanged();
}

PyObject* fallback_observer = nullptr;

void callFallbackObserver(const std::string& op, const std::string& device) {
  const py::gil_scoped_acquire gil;
  if (fallback_observer == nullptr) return;
  try {
    py::reinterpret_borrow<py::function>(fallback_observer)(op, device);
  } catch (py::error_already_set& error) {  // warnings may be errors
    error.restore();
    python_error failure;
    failure.persist();
    throw failure;
  }
}

// Python's exception as one of PyTorch's: the caller need not hold the GIL.
void callWhenOpened(PyObject* callable) {
  std::string failure;
  {
    const py::gil_scoped_acquire gil;
    try {
      py::reinterpret_steal<py::function>(callable)();
    } catch (const py::error_already_set& error) {
      failure = py::str(error.value()).cast<std::string>();
    }
  }
  TORCH_CHECK(failure.empty(), failure);
}

void bindChanges(py::module_& m) {
  m.def(
      "publish",
      [](const std::string& backend, const py::dict& routes, const py::handle& order) {
        return ops::publish(backend, toRoutes(routes), toCandidates(order));
      },
      py::arg("backend"), py::arg("routes"), py::arg("default"),
      "Replace a backend's routes: operators named, and the order for all others. The table's number.");
  m.def(
      "update",
      [](const std::string& backend, const py::dict& routes) {
        return ops::update(backend, toRoutes(routes));
      },
      py::arg("backend"), py::arg("routes"),
      "Change the routes of some operators; None gives an operator the default order again.");
  m.def(
      "push",
      [](const py::dict& routes) {
        std::map<std::string, Routes> by_backend;
        for (const auto& [name, entries] : routes)
          by_backend.emplace(name.cast<std::string>(), toRoutes(entries.cast<py::dict>()));
        ops::pushOverlay(by_backend);
      },
      py::arg("routes"), "Lay routes (by backend, by operator) over all others for this thread.");
  m.def("pop", [] { ops::popOverlay(); }, "Take the last routes of this thread away.");
  m.def(
      "register_python",
      [](const std::string& source, const std::string& op, const std::optional<std::string>& backend,
         py::function function) { registerKernel(source, op, backend, pythonKernel(std::move(function))); },
      py::arg("source"), py::arg("op"), py::arg("backend"), py::arg("function"),
      "Let a Python function implement an operator for a source; NotImplemented declines.");
  m.def(
      "unregister_python",
      [](const std::string& source, const std::string& op, const std::optional<std::string>& backend) {
        registerKernel(source, op, backend, {});
      },
      py::arg("source"), py::arg("op"), py::arg("backend"), "Take it away again.");
}

void bindSafety(py::module_& m) {
  m.def(
      "set_check",
      [](bool on) {
        ops::setRouteCheck(on);
        if (on) ops::clearRouteDifferences();
        ops::watch(ops::Watch::Check, on);
      },
      py::arg("on"), "Run every operator by a second source too, and compare.");
  m.def(
      "check_report",
      [] {
        py::list rows;
        for (const ops::RouteDifference& row : ops::routeDifferences()) {
          rows.append(py::dict(py::arg("op") = row.op, py::arg("source") = row.source,
                               py::arg("reference") = row.reference, py::arg("device") = row.device,
                               py::arg("arguments") = row.arguments, py::arg("what") = row.what));
        }
        return rows;
      },
      "The operators that differed since set_check(True), in order.");
  m.def(
      "set_fallback",
      [](const std::string& policy) {
        TORCH_CHECK_VALUE(policy == "allow" || policy == "warn" || policy == "error",
                          "flagos: the fallback policy is allow, warn or error, not '", policy, "'");
        ops::setFallbackPolicy(policy == "allow"  ? ops::FallbackPolicy::Allow
                               : policy == "warn" ? ops::FallbackPolicy::Warn
                                                  : ops::FallbackPolicy::Error);
        ops::resetFallbackWarnings();
      },
      py::arg("policy"), "What an operator of a real accelerator that runs on the host is.");
  m.def(
      "fallback",
      [] {
        switch (ops::fallbackPolicy()) {
          case ops::FallbackPolicy::Allow:
            return "allow";
          case ops::FallbackPolicy::Error:
            return "error";
          default:
            return "warn";
        }
      },
      "The policy now.");
  m.def(
      "on_fallback",
      [](py::function function) {
        Py_XDECREF(fallback_observer);
        fallback_observer = function.release().ptr();
        ops::setFallbackObserver(&callFallbackObserver);
      },
      py::arg("function"),
      "Have a function called with (operator, device) at the first fallback of each operator.");
  m.def(
      "declines",
      [] {
        py::list rows;
        for (const ops::DeclineCount& row : ops::declineCounts())
          rows.append(py::make_tuple(row.op, ops::sourceName(row.source), row.count));
        return rows;
      },
      "List (operator, source, how often it declined).");
}

}  // namespace

void bindRoutes(py::module_& module) {
  auto m = module.def_submodule("routes", "Which source serves an operator.");
  m.def(
      "sources",
      [] {
        py::list names;
        for (size_t i = 0; i < ops::kSourceCount; ++i) names.append(ops::sourceName(static_cast<Source>(i)));
        return names;
      },
      "The names of the sources.");
  m.def(
      "operators",
      [] {
        ops::registerOperators();
        py::list names;
        for (ops::OpId id = 0; id < ops::opCount(); ++id) {
          if (ops::recordOf(id) != nullptr) names.append(ops::opName(id));
        }
        return names;
      },
      "The operators that are routed.");
  m.def(
      "backends",
      [] {
        {
          const py::gil_scoped_release no_gil;
          activate();
        }
        return ops::routedBackends();
      },
      "The backends with devices, in the order of these; opens them.");
  m.def(
      "capability",
      [](const std::string& op, const std::string& backend) {
        py::list names;
        for (const Source source : ops::capability(op, backend)) names.append(ops::sourceName(source));
        return names;
      },
      py::arg("op"), py::arg("backend"), "The sources that have an implementation here and now.");
  m.def(
      "decide",
      [](const std::string& op, const std::string& backend, const py::tuple& args, const py::dict& kwargs) {
        return decide(op, backend, args, py::reinterpret_borrow<py::kwargs>(kwargs));
      },
      py::arg("op"), py::arg("backend"), py::arg("args"), py::arg("kwargs"),
      "Which candidate would serve a call, and why not the others; without arguments, as far as that is "
      "known.");
  m.def(
      "on_open",
      [](py::function function) {
        PyObject* callable = function.release().ptr();
        const py::gil_scoped_release no_gil;
        onOpened([callable] { callWhenOpened(callable); });
      },
      py::arg("function"),
      "Have a function called without arguments once the devices are open; at once if so.");
  bindChanges(m);
  bindSafety(m);
}

}  // namespace flagos
