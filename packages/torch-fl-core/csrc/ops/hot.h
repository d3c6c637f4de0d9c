// The unboxed wrapper of an operator: one template over at::_ops::<op>, instantiated for the operators that
// are called most. It does what routed_kernel.cpp does by schema, without the stack of boxed values.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "csrc/ops/hot_autograd.h"
#include "csrc/ops/hot_lists.h"
#include "csrc/ops/op_record.h"
#include "csrc/ops/operator_call.h"
#include "csrc/ops/routed_kernel.h"
#include "csrc/ops/source_generator.h"

namespace flagos::ops {

// Holds one argument between the caller and the kernel. see() before OperatorCall::begin, get() after it.
template <class T>
struct Held {  // numbers, sizes, dtypes …: passed on
  explicit Held(T value) : value_(value) {}
  void see(OperatorCall& /*call*/, Access /*access*/) {}
  T get(OperatorCall& /*call*/) { return value_; }
  at::Tensor* written() { return nullptr; }
  T value_;
};

// A tensor that stays as it is: undefined, or of the host.
inline bool isForeign(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.device().type() != kDeviceType;
}

template <>
struct Held<const at::Tensor&> {
  explicit Held(const at::Tensor& value) : value_(value) {}
  void see(OperatorCall& call, Access access) { call.see(value_, access); }
  const at::Tensor& get(OperatorCall& call) {
    return isForeign(value_) ? value_ : *call.lend(value_, alias_);
  }
  at::Tensor* written() { return nullptr; }
  const at::Tensor& value_;
  std::optional<at::Tensor> alias_;
};

template <>
struct Held<at::Tensor&> {
  explicit Held(at::Tensor& value) : value_(value) {}
  void see(OperatorCall& call, Access access) { call.see(value_, access); }
  at::Tensor& get(OperatorCall& call) { return isForeign(value_) ? value_ : *call.lend(value_, alias_); }
  at::Tensor* written() { return &value_; }
  at::Tensor& value_;
  std::optional<at::Tensor> alias_;
};

template <>
struct Held<const std::optional<at::Tensor>&> {
  explicit Held(const std::optional<at::Tensor>& value) : value_(value) {}
  void see(OperatorCall& call, Access access) {
    if (value_.has_value()) call.see(*value_, access);
  }
  const std::optional<at::Tensor>& get(OperatorCall& call) {
    return !value_.has_value() || isForeign(*value_) ? value_ : call.lend(*value_, alias_);
  }
  at::Tensor* written() { return nullptr; }
  const std::optional<at::Tensor>& value_;
  std::optional<at::Tensor> alias_;
};

// Aliases in a row, as lists need them. Those in slots are held without counting.
class LentList {
 public:
  LentList() = default;
  LentList(const LentList&) = delete;
  LentList& operator=(const LentList&) = delete;
  ~LentList() {
    for (at::Tensor& tensor : tensors_) (void)tensor.unsafeReleaseTensorImpl();
  }
  template <class Range>
  at::TensorList lend(OperatorCall& call, const Range& originals) {
    tensors_.reserve(originals.size());
    for (const at::Tensor& tensor : originals) {
      if (C10_UNLIKELY(isForeign(tensor))) {
        tensors_.push_back(uncounted(tensor));
        continue;
      }
      std::optional<at::Tensor> holder;
      tensors_.push_back(uncounted(*call.lend(tensor, holder)));
      if (C10_UNLIKELY(holder.has_value())) held_.push_back(*std::move(holder));
    }
    return tensors_;
  }

 private:
  static at::Tensor uncounted(const at::Tensor& tensor) {
    return at::Tensor(
        c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(tensor.unsafeGetTensorImpl()));
  }

  std::vector<at::Tensor> held_;
  c10::SmallVector<at::Tensor, 8> tensors_;
};

template <>
struct Held<at::TensorList> {
  explicit Held(at::TensorList value) : value_(value) {}
  void see(OperatorCall& call, Access access) {
    for (const at::Tensor& tensor : value_) call.see(tensor, access);
  }
  at::TensorList get(OperatorCall& call) { return aliases_.lend(call, value_); }
  at::Tensor* written() { return nullptr; }
  at::TensorList value_;
  LentList aliases_;
};

template <>
struct Held<const at::ITensorListRef&> {
  explicit Held(const at::ITensorListRef& value) : value_(value) {}
  void see(OperatorCall& call, Access access) {
    for (const at::Tensor& tensor : value_) call.see(tensor, access);
  }
  const at::ITensorListRef& get(OperatorCall& call) {
    list_.emplace(aliases_.lend(call, value_));
    return *list_;
  }
  at::Tensor* written() { return nullptr; }
  const at::ITensorListRef& value_;
  LentList aliases_;
  std::optional<at::ITensorListRef> list_;
};

template <>
struct Held<const c10::List<std::optional<at::Tensor>>&> {
  explicit Held(const c10::List<std::optional<at::Tensor>>& value) : value_(value), boxed_(value) {}
  void see(OperatorCall& call, Access access) {
    for (const c10::IValue& element : boxed_.toListRef()) {
      if (element.isTensor()) call.see(element.toTensor(), access);
    }
  }
  const c10::List<std::optional<at::Tensor>>& get(OperatorCall& call) {
    const auto elements = boxed_.toListRef();
    aliases_.reserve(elements.size());
    for (const c10::IValue& element : elements) {
      std::optional<at::Tensor> holder;
      if (!element.isTensor() || isForeign(element.toTensor())) {
        aliases_.push_back(element.toOptional<at::Tensor>());
      } else {
        aliases_.push_back(call.lend(element.toTensor(), holder));
      }
    }
    return aliases_;
  }
  at::Tensor* written() { return nullptr; }
  const c10::List<std::optional<at::Tensor>>& value_;
  c10::IValue boxed_;  // the same list; gives its elements without counting them
  c10::List<std::optional<at::Tensor>> aliases_;
};

template <>
struct Held<std::optional<at::Generator>> {
  explicit Held(std::optional<at::Generator> value) : value_(std::move(value)) {}
  void see(OperatorCall& /*call*/, Access /*access*/) {}
  std::optional<at::Generator> get(OperatorCall& call) { return sourceGenerator(value_, call); }
  at::Tensor* written() { return nullptr; }
  std::optional<at::Generator> value_;
};

// Turns what the kernel returned into what the caller gets.
template <class R>
struct Returned {
  template <class Value>
  static R convert(Value&& value, OperatorCall& call, at::Tensor* const* /*written*/) {
    if constexpr (std::is_same_v<R, at::Tensor>) {
      return call.result(std::forward<Value>(value));
    } else if constexpr (std::is_same_v<R, std::vector<at::Tensor>>) {
      R list = std::forward<Value>(value);
      for (at::Tensor& tensor : list) tensor = call.result(std::move(tensor));
      return list;
    } else {
      return std::forward<Value>(value);
    }
  }
};

template <>
struct Returned<at::Tensor&> {
  static at::Tensor& convert(at::Tensor& /*value*/, OperatorCall& /*call*/, at::Tensor* const* written) {
    return **written;
  }
};

template <class... Ts>
struct Returned<std::tuple<Ts...>> {
  template <class Value>
  static std::tuple<Ts...> convert(Value&& value, OperatorCall& call, at::Tensor* const* written) {
    return convertAll(std::forward<Value>(value), call, written, std::index_sequence_for<Ts...>{});
  }
  template <class Value, size_t... I>
  static std::tuple<Ts...> convertAll(Value&& value, OperatorCall& call, at::Tensor* const* written,
                                      std::index_sequence<I...>) {
    return std::tuple<Ts...>(
        Returned<Ts>::convert(std::get<I>(std::forward<Value>(value)), call, written + I)...);
  }
};

template <class T>
void countVersions(Held<T>& held, const OperatorCall& call, Access access) {
  if constexpr (std::is_same_v<T, at::TensorList>) {
    if (access == Access::Read) return;
    for (const at::Tensor& tensor : held.value_) call.countVersion(tensor);
  }
}

template <class T>
bool listSpansDevices(const T& argument, std::optional<c10::Device>& first) {
  if constexpr (std::is_same_v<T, at::TensorList>) return spanDevices(argument, first);
  return false;
}

template <class Op, class Schema = typename Op::schema>
struct Hot;

template <class Op, class R, class... Args>
struct Hot<Op, R(Args...)> {
  static inline const OpRecord* record = nullptr;
  static inline OperatorTraits traits;
  static inline c10::KernelFunction routed;  // by schema, for routes that have more to them

  static constexpr bool list_loop = std::string_view(Op::name).substr(0, 15) == "aten::_foreach_";

  FLAGOS_HOT static R call(Args... args) {
    if constexpr (list_loop) {
      std::optional<c10::Device> first;
      if (C10_UNLIKELY((listSpansDevices(args, first) || ...)))
        return Op::redispatch(compositeKeys(), args...);
    }
    return run(std::index_sequence_for<Args...>{}, std::forward<Args>(args)...);
  }

  template <size_t... I>
  FLAGOS_HOT static R run(std::index_sequence<I...>, Args... args) {
    OperatorCall call(record->id, traits);
    std::tuple<Held<Args>...> held(std::forward<Args>(args)...);
    const ArgumentRecord* arguments = record->arguments.data();
    (std::get<I>(held).see(call, arguments[I].access), ...);
    if (C10_UNLIKELY(!call.settle())) {
      return routed.template call<R, Args...>(record->op, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                              std::get<I>(held).value_...);
    }
    call.begin();
    try {
      if constexpr (std::is_void_v<R>) {
        Op::redispatch(call.keys(), std::get<I>(held).get(call)...);
        call.finishWrites();
        if constexpr (list_loop) {
          if (traits.counts_versions) (countVersions(std::get<I>(held), call, arguments[I].access), ...);
        }
      } else {
        // Arguments are lent left to right, before the kernel reads any of them.
        std::array<at::Tensor*, sizeof...(Args) + 1> written{};
        size_t count = 0;
        ((std::get<I>(held).written() != nullptr ? void(written[count++] = std::get<I>(held).written())
                                                 : void()),
         ...);
        decltype(auto) value = Op::redispatch(call.keys(), std::get<I>(held).get(call)...);
        call.finishWrites();
        return Returned<R>::convert(static_cast<decltype(value)&&>(value), call, written.data());
      }
    } catch (c10::AcceleratorError& error) {
      call.explain(error);
      throw;
    }
  }
};

// Under the double's dense key: on to the device's kernel, which a program may have replaced by one of its own.
template <class Op, class Schema = typename Op::schema>
struct HotDouble;

template <class Op, class R, class... Args>
struct HotDouble<Op, R(Args...)> {
  FLAGOS_HOT static R call(Args... args) { return Op::redispatch(denseKeys(), std::forward<Args>(args)...); }
};

// In the place of autograd's kernel: does without it where there is nothing to record, which takes about as much
// time as boxing adds. Autograd's own kernel lies under the same key of the double (see doubleKeys).
template <class Op, class Schema = typename Op::schema>
struct HotAutograd;

template <class Op, class R, class... Args>
struct HotAutograd<Op, R(Args...)> {
  FLAGOS_HOT static R call(c10::DispatchKeySet keys, Args... args) {
    const bool recording = c10::GradMode::is_enabled();
    if (C10_UNLIKELY(!isDense(keys) || !(leavesNothing(args, recording) && ...)))
      return Op::redispatch(doubleKeys(keys), std::forward<Args>(args)...);
    if constexpr (std::is_void_v<R>) {
      const at::AutoDispatchBelowAutograd guard;  // loops over lists count versions in what they call
      Op::redispatch(denseKeys(), std::forward<Args>(args)...);
    } else if constexpr (std::is_same_v<R, at::Tensor&>) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      at::Tensor& changed = Op::redispatch(denseKeys(), std::forward<Args>(args)...);
      changed.unsafeGetTensorImpl()->bump_version();
      return changed;
    } else {
      const at::AutoDispatchBelowADInplaceOrView guard;
      return Op::redispatch(denseKeys(), std::forward<Args>(args)...);
    }
  }
};

// Registers the wrapper; false if this torch minor lacks the operator or the libraries do not want it.
template <class Op>
bool registerHot(HotLibraries& libraries, OperatorTraits more) {
  const c10::OperatorName name(Op::name, Op::overload_name);
  const auto handle = c10::Dispatcher::singleton().findSchema(name);
  if (!handle.has_value() || !libraries.wants(*handle)) return false;
  Hot<Op>::record = &opRecord(*handle);
  Hot<Op>::traits = Hot<Op>::record->traits;
  const bool has_out = std::string_view(Op::overload_name).find("out") != std::string_view::npos;
  Hot<Op>::traits.elementwise = more.elementwise && !has_out;
  Hot<Op>::traits.keeps_sizes = more.keeps_sizes;
  Hot<Op>::routed =
      c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<RoutedKernel>(*Hot<Op>::record));
  libraries.add(*Hot<Op>::record, torch::CppFunction(TORCH_FN(Hot<Op>::call)),
                torch::CppFunction(TORCH_FN(HotDouble<Op>::call)),
                torch::CppFunction(TORCH_FN(HotAutograd<Op>::call)));
  return true;
}

template <class... Ops>
int64_t registerAll(HotLibraries& libraries) {
  return (int64_t{registerHot<Ops>(libraries, {})} + ...);
}

// For operators whose kernels are elementwise in the sense of OperatorTraits.
template <class... Ops>
int64_t registerElementwise(HotLibraries& libraries) {
  return (int64_t{registerHot<Ops>(libraries, {.elementwise = true})} + ...);
}

// For those that keep sizes in the sense of OperatorTraits.
template <class... Ops>
int64_t registerKeepingSizes(HotLibraries& libraries) {
  return (int64_t{registerHot<Ops>(libraries, {.keeps_sizes = true})} + ...);
}

}  // namespace flagos::ops
