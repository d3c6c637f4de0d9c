#include "csrc/ops/route_check.h"

#include <ATen/ATen.h>

#include <array>
#include <atomic>
#include <mutex>
#include <sstream>

#include "csrc/ops/routed_kernel.h"
#include "csrc/ops/router.h"

namespace flagos::ops {

namespace {

std::atomic<bool> on{false};
thread_local bool inside = false;  // the second run, and what it calls, is not compared again

struct Differences {
  std::mutex mutex;
  std::vector<RouteDifference> list;  // guarded by mutex
};

Differences& differences() {
  static auto* instance = new Differences;
  return *instance;
}

at::Tensor copyOf(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != c10::Layout::Strided) return tensor;
  if (!tensor.is_non_overlapping_and_dense()) return tensor.clone();
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
  copy.copy_(tensor);
  return copy;
}

c10::IValue copyOf(const c10::IValue& value) {
  if (value.isTensor()) return copyOf(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(copyOf(tensor));
    return list;
  }
  return value;  // lists of optional tensors hold indices, which no kernel writes
}

std::string describe(const c10::IValue& value) {
  std::ostringstream text;
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return "no tensor";
    text << c10::getDtypeNames(tensor.scalar_type()).first << tensor.sizes();
    if (!tensor.is_contiguous()) text << " strides " << tensor.strides();
  } else if (value.isTensorList()) {
    text << value.toTensorVector().size() << " tensors";
  } else {
    text << value;
  }
  return text.str();
}

std::string describeArguments(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  std::string text;
  for (size_t i = 0; i < arguments.size(); ++i) {
    text += (i == 0 ? "" : ", ") + schema.arguments()[i].name() + "=" + describe(arguments[i]);
  }
  return text;
}

// Half the digits of the type: sources differ in the order of their sums.
double tolerance(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::BFloat16:
      return 3e-2;
    case c10::ScalarType::Half:
      return 4e-3;
    case c10::ScalarType::Double:
    case c10::ScalarType::ComplexDouble:
      return 1e-7;
    default:
      return c10::isFloatingType(type) || c10::isComplexType(type) ? 2e-4 : 0.0;
  }
}

std::string compareTensors(const at::Tensor& got, const at::Tensor& wanted) {
  if (got.defined() != wanted.defined()) return "one result is undefined";
  if (!got.defined() || got.layout() != c10::Layout::Strided) return {};
  if (got.sizes() != wanted.sizes() || got.scalar_type() != wanted.scalar_type()) {
    std::ostringstream text;
    text << "sizes or dtypes: " << describe(got) << " and " << describe(wanted);
    return text.str();
  }
  if (got.numel() == 0) return {};
  const bool exact = tolerance(got.scalar_type()) == 0.0;
  const bool complex = c10::isComplexType(got.scalar_type());
  const auto wide = exact ? got.scalar_type() : complex ? at::kComplexDouble : at::kDouble;
  const at::Tensor a = got.to(at::kCPU).to(wide);
  const at::Tensor b = wanted.to(at::kCPU).to(wide);
  const double limit = tolerance(got.scalar_type());
  if (exact ? a.equal(b) : at::allclose(a, b, limit, limit, /*equal_nan=*/true)) return {};
  std::ostringstream text;
  text << "values";
  if (!complex && got.scalar_type() != at::kBool)
    text << ", by up to " << (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
  return text.str();
}

std::string compareValues(const c10::IValue& got, const c10::IValue& wanted) {
  if (got.isTensor() && wanted.isTensor()) return compareTensors(got.toTensor(), wanted.toTensor());
  if (!got.isTensorList() || !wanted.isTensorList()) return {};
  const auto first = got.toTensorVector();
  const auto second = wanted.toTensorVector();
  if (first.size() != second.size()) return "numbers of results";
  for (size_t i = 0; i < first.size(); ++i) {
    std::string what = compareTensors(first[i], second[i]);
    if (!what.empty()) return what;
  }
  return {};
}

}  // namespace

void setRouteCheck(bool value) noexcept { on.store(value); }

bool routeCheck() noexcept { return on.load(std::memory_order_relaxed); }

std::vector<RouteDifference> routeDifferences() {
  const std::lock_guard<std::mutex> lock(differences().mutex);
  return differences().list;
}

void clearRouteDifferences() {
  const std::lock_guard<std::mutex> lock(differences().mutex);
  differences().list.clear();
}

RouteCheck::RouteCheck(const OpRecord& record, const torch::jit::Stack& stack) : record_(record) {
  if (!routeCheck() || inside || !record.compared) return;
  inside = true;
  active_ = true;
  const size_t count = record.arguments.size();
  originals_.assign(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  try {
    for (const c10::IValue& value : originals_) copies_.push_back(copyOf(value));
  } catch (const c10::Error&) {  // what cannot be copied is not compared
    active_ = false;
  }
  inside = false;
}

void RouteCheck::compare(const torch::jit::Stack& stack, Source source, const DeviceEntry& device) {
  if (!active_) return;
  // The host is the reference for every other source; the host itself is compared with the companion.
  const Source other = source == Source::Cpu ? Source::Boxed : Source::Cpu;
  const bool possible = other == Source::Cpu
                            ? hasHostKernel(record_)
                            : device.companion != nullptr && hasKernel(record_, device.companion->keys);
  if (!possible) return;
  inside = true;
  std::string what;
  try {
    torch::jit::Stack second = copies_;
    callSource(record_, &second, other, device);
    for (size_t i = 0; i < record_.returns && what.empty(); ++i) {
      what = compareValues(stack[stack.size() - record_.returns + i],
                           second[second.size() - record_.returns + i]);
    }
    for (size_t i = 0; i < originals_.size() && what.empty(); ++i) {
      if (record_.arguments[i].access != Access::Read) what = compareValues(originals_[i], copies_[i]);
    }
  } catch (const c10::Error& error) {
    what = std::string("the second run raised: ") + error.what_without_backtrace();
  }
  inside = false;
  if (what.empty()) return;
  const std::lock_guard<std::mutex> lock(differences().mutex);
  const std::string name = opName(record_.id);
  for (const RouteDifference& known : differences().list) {
    if (known.op == name) return;
  }
  differences().list.push_back({name, sourceName(source), sourceName(other), describeDevice(device),
                                describeArguments(record_.op.schema(), copies_), what});
}

void noteCandidateError(OpId op, Source source, const std::string& error) {
  static auto* told = new std::array<std::atomic<bool>, kMaxOps>();
  if ((*told)[op].exchange(true)) return;
  TORCH_WARN("flagos: source ", sourceName(source), " raised in ", opName(op),
             ", and its route lets the next source take over (said once): ", error);
}

}  // namespace flagos::ops
