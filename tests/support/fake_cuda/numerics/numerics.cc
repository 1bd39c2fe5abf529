// Real numbers on the fake device. Every CUDA kernel of torch's dispatcher for which there is a CPU
// kernel is wrapped: the CUDA kernel runs as always (allocates, checks, launches no-ops and is
// counted), then the CPU kernel is queued on the same stream, on the same memory, and its results
// are copied to where the CUDA kernel promised them. So the order of streams and events decides
// what is read, as on a GPU.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_cuda/numerics/account.h"
#include "tests/support/fake_cuda/numerics/formulas.h"

namespace ddp::test::fake_cuda {
namespace {

using c10::IValue;
using torch::jit::Stack;

// Above 0 while this thread is inside a wrapped CUDA kernel, whose inner calls compute nothing.
thread_local int depth = 0;
// Whether this thread computes on the host.
thread_local bool computing = false;

class Within {
 public:
  Within() { ++depth; }
  ~Within() { --depth; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
};

class Computing {
 public:
  Computing() { computing = true; }
  ~Computing() { computing = false; }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;
};

bool on_device(const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); }

void keep_number(const at::Tensor& from, const at::Tensor& to) {
  if (from.unsafeGetTensorImpl()->is_wrapped_number())
    to.unsafeGetTensorImpl()->set_wrapped_number(true);
}

/// A CPU tensor over the same memory.
at::Tensor alias_of(const at::Tensor& tensor) {
  if (!on_device(tensor)) return tensor;
  at::Tensor alias = at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                                   tensor.options().device(at::kCPU).requires_grad(false));
  if (tensor.is_neg()) alias = alias._neg_view();
  if (tensor.is_conj()) alias = alias.conj();
  keep_number(tensor, alias);
  return alias;
}

/// As an argument of work that happens later: a host tensor may have changed by then.
at::Tensor kept(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (tensor.is_cuda()) return alias_of(tensor);
  at::Tensor copy = tensor.clone();
  keep_number(tensor, copy);
  return copy;
}

IValue for_cpu(const IValue& value) {
  if (value.isTensor()) return kept(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(kept(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional(kept(*tensor)) : std::nullopt);
    return list;
  }
  if (value.isDevice() && value.toDevice().is_cuda()) return c10::Device(c10::kCPU);
  return value;
}

bool is_generator(const c10::Argument& argument) {
  return argument.type()->str().starts_with("Generator");
}

/// Where the device's generator stands; when a graph is captured, where it will stand.
at::PhiloxCudaState place_of(const IValue& given) {
  at::Generator generator = given.isGenerator() ? given.toGenerator()
                                                : at::globalContext().defaultGenerator(c10::Device(
                                                      c10::kCUDA, c10::cuda::current_device()));
  const std::lock_guard lock(generator.mutex());
  return at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(0);
}

/// For one operation: seeded by where the device's generator stands, so that the same seeds give
/// the same numbers, whatever was drawn on the host meanwhile. In the order of the stream.
at::Generator host_generator(const at::PhiloxCudaState& place) {
  const auto value = [&](const auto& of) {
    return place.captured_ ? static_cast<uint64_t>(*of.ptr) : of.val;
  };
  const uint64_t offset = value(place.offset_) + place.offset_intragraph_;
  uint64_t seed = value(place.seed_) + 0x9e3779b97f4a7c15ULL * (offset + 1);
  seed = (seed ^ (seed >> 30U)) * 0xbf58476d1ce4e5b9ULL;  // splitmix64
  seed = (seed ^ (seed >> 27U)) * 0x94d049bb133111ebULL;
  return at::make_generator<at::CPUGeneratorImpl>(seed ^ (seed >> 31U));
}

bool has_device_tensor(const Stack& stack, std::size_t from) {
  for (std::size_t i = from; i < stack.size(); ++i) {
    if (stack[i].isTensor() && on_device(stack[i].toTensor())) return true;
    if (!stack[i].isTensorList()) continue;
    for (const at::Tensor& tensor : stack[i].toTensorVector()) {
      if (on_device(tensor)) return true;
    }
  }
  return false;
}

/// The tensors that a CPU kernel left on its stack.
std::vector<at::Tensor> tensors_of(const Stack& stack) {
  std::vector<at::Tensor> tensors;
  for (const auto& value : stack) {
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
    } else {
      tensors.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
    }
  }
  return tensors;
}

/// Where the results of a CUDA kernel belong; undefined for those that were written in place.
std::vector<at::Tensor> promised(const c10::OperatorHandle& op, const Stack& stack) {
  std::vector<at::Tensor> places;
  const auto& returns = op.schema().returns();
  const std::size_t first = stack.size() - returns.size();
  for (std::size_t i = 0; i < returns.size(); ++i) {
    const IValue& value = stack[first + i];
    const bool in_place = returns[i].alias_info() != nullptr && returns[i].alias_info()->isWrite();
    if (!in_place && value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) places.push_back(alias_of(tensor));
    } else if (!in_place && value.isTensor() && on_device(value.toTensor())) {
      places.push_back(alias_of(value.toTensor()));
    } else {
      places.emplace_back();
    }
  }
  return places;
}

void deliver(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& places,
             const std::string& name) {
  for (std::size_t i = 0; i < places.size() && i < results.size(); ++i) {
    const at::Tensor& place = places[i];
    const at::Tensor& result = results[i];
    if (!place.defined() || !result.defined() || place.numel() == 0) continue;
    if (place.numel() == result.numel()) {
      place.copy_(result.reshape(place.sizes()));
    } else {
      fakecuda_count(("numerics:shape:" + name).c_str(), 0);
    }
  }
}

const bool accounts = fakecuda_accounts() != 0;
const bool computes = fakecuda_computes() != 0;

/// Where nothing is computed, a small result reads as 0: programs read flags and counts, and what
/// their memory held before would pass for one on some ranks, depending on time.
void clear_small(const at::Tensor& result) {
  constexpr std::size_t kSmall = 64;
  if (!result.defined() || result.numel() == 0 || result.nbytes() > kSmall ||
      !result.is_non_overlapping_and_dense())
    return;
  std::function<void()> work = [at = result.data_ptr(), bytes = result.nbytes()] {
    std::memset(at, 0, bytes);
  };
  fakecuda_enqueue(c10::cuda::getCurrentCUDAStream().stream(), &work);
}

/// Calls a CUDA kernel that computes nothing. What it writes in place is cleared first: copies of
/// bytes are real.
void call_without_numbers(const c10::SafeKernelFunction& cuda, const c10::OperatorHandle& op,
                          c10::DispatchKeySet keys, Stack* stack) {
  const auto& schema = op.schema();
  const std::size_t from = stack->size() - schema.arguments().size();
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    const IValue& value = (*stack)[from + i];
    if (alias != nullptr && alias->isWrite() && value.isTensor() && on_device(value.toTensor()))
      clear_small(value.toTensor());
  }
  {
    const Within within;
    cuda.callBoxed(op, keys, stack);
  }
  for (const at::Tensor& place : promised(op, *stack)) clear_small(place);
}

/// A kernel of the CUDA key that also computes.
class Wrapped final : public c10::OperatorKernel {
 public:
  enum class How {
    kQueued,  ///< Computes in stream order.
    kAtOnce,  ///< The size of its result depends on values: the host waits, as it does on a GPU.
    kBetweenOnly,  ///< copy_: between host and device the runtime's memcpy does it.
  };

  Wrapped(c10::SafeKernelFunction cuda, c10::SafeKernelFunction cpu,
          const c10::FunctionSchema& schema, How how)
      : cuda_(std::move(cuda)),
        cpu_(std::move(cpu)),
        drops_(schema.name() == "aten::native_dropout"),
        how_(how) {
    const auto& arguments = schema.arguments();
    const auto at = std::find_if(arguments.begin(), arguments.end(), is_generator);
    if (at != arguments.end() || drops_)
      generator_at_ = static_cast<std::size_t>(at - arguments.begin());
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const std::size_t count = op.schema().arguments().size();
    const std::size_t from = stack->size() - count;
    if (how_ == How::kAtOnce && !computing && (depth == 0 || has_device_tensor(*stack, from)))
      return compute_at_once(op, stack, from);
    if (depth > 0 || computing || (how_ == How::kBetweenOnly && !both_on_device(*stack, from)))
      return cuda_.callBoxed(op, keys, stack);
    const std::vector<IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count),
                                        stack->end());
    std::optional<at::PhiloxCudaState> drawn_at;
    if (generator_at_ && computes)
      drawn_at = place_of(drops_ ? IValue() : arguments[*generator_at_]);
    if (computes) {
      const Within within;
      cuda_.callBoxed(op, keys, stack);
    } else {
      call_without_numbers(cuda_, op, keys, stack);
    }
    if (accounts) account(op, arguments, *stack);
    if (!computes) return;
    auto input = std::make_shared<Stack>();
    for (const auto& argument : arguments) input->push_back(for_cpu(argument));
    if (drops_) input->emplace_back();
    std::function<void()> work = [this, op, input, drawn_at, places = promised(op, *stack)] {
      Stack given = *input;  // a graph does it again
      if (drawn_at) given[*generator_at_] = host_generator(*drawn_at);
      compute(op, given, places);
    };
    fakecuda_enqueue(c10::cuda::getCurrentCUDAStream().stream(), &work);
  }

 private:
  static bool both_on_device(const Stack& stack, std::size_t from) {
    return on_device(stack[from].toTensor()) && on_device(stack[from + 1].toTensor());
  }

  /// On the stream's worker.
  void compute(const c10::OperatorHandle& op, Stack& stack, const std::vector<at::Tensor>& places) {
    static thread_local const bool one_thread = (at::set_num_threads(1), true);
    static_cast<void>(one_thread);
    const Computing now;
    const c10::InferenceMode plain;  // no autograd, no version counters
    const std::string& name = op.schema().name();
    try {
      if (drops_) {
        dropout(stack);
      } else {
        cpu_.callBoxed(op, c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
      }
      deliver(tensors_of(stack), places, name);
    } catch (const std::exception& error) {
      // Wrong numbers would look like a defect of the program under test.
      std::fprintf(stderr, "fake CUDA: cannot compute %s: %.600s\n", name.c_str(), error.what());
      std::_Exit(2);
    }
  }

  void compute_at_once(const c10::OperatorHandle& op, Stack* stack, std::size_t from) {
    TORCH_CHECK(c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None,
                op.schema().name(), ": operation not permitted when stream is capturing");
    fakecuda_wait(c10::cuda::getCurrentCUDAStream().stream(), op.schema().name().c_str());
    const c10::Device device(c10::kCUDA, c10::cuda::current_device());
    Stack input;
    for (std::size_t i = from; i < stack->size(); ++i) input.push_back(for_cpu((*stack)[i]));
    stack->erase(stack->begin() + static_cast<std::ptrdiff_t>(from), stack->end());
    {
      const Computing now;
      const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset);
      op.callBoxedForDispatchKey(c10::DispatchKey::CPU, input);
    }
    for (const auto& value : input) {
      if (!value.isTensor() || !value.toTensor().defined()) {
        stack->push_back(value);
        continue;
      }
      const at::Tensor result = value.toTensor().contiguous();
      at::Tensor place = at::empty(result.sizes(), result.options().device(device));
      if (result.numel() > 0)
        std::memcpy(place.data_ptr(), result.const_data_ptr(), result.nbytes());
      stack->push_back(place);
    }
  }

  c10::SafeKernelFunction cuda_;
  c10::SafeKernelFunction cpu_;
  bool drops_;
  How how_;
  std::optional<std::size_t> generator_at_;  ///< Among the arguments; after them for dropout.
};

/// A kernel of the CUDA key whose results nobody can compute.
class WithoutNumbers final : public c10::OperatorKernel {
 public:
  explicit WithoutNumbers(c10::SafeKernelFunction cuda) : cuda_(std::move(cuda)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const bool outermost = depth == 0 && !computing;
    if (outermost && computes) {
      std::fprintf(stderr, "fake CUDA: %s has no CPU kernel; formulas.cc needs one for it\n",
                   c10::toString(op.operator_name()).c_str());
      std::_Exit(2);
    }
    const std::size_t count = op.schema().arguments().size();
    const std::vector<IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count),
                                        stack->end());
    if (outermost) {
      call_without_numbers(cuda_, op, keys, stack);
    } else {
      const Within within;
      cuda_.callBoxed(op, keys, stack);
    }
    if (accounts && outermost) account(op, arguments, *stack);
  }

 private:
  c10::SafeKernelFunction cuda_;
};

/// Operators that make or describe tensors and compute nothing.
const std::set<std::string>& without_numbers() {
  static const std::set<std::string> names = {
      "aten::empty",     "aten::empty_strided",   "aten::resize_",
      "aten::set_",      "aten::_copy_from",      "aten::_local_scalar_dense",
      "aten::is_pinned", "aten::_pin_memory",     "aten::pin_memory",
      "aten::storage",   "aten::record_stream",   "aten::_efficientzerotensor",
      "aten::equal",     "aten::_resize_output_", "aten::new_empty_strided",
      "aten::is_set_to"};
  return names;
}

/// Operators whose results' sizes depend on values.
const std::set<std::string>& sized_by_values() {
  static const std::set<std::string> names = {
      "aten::nonzero",  "aten::masked_select",      "aten::_unique2",         "aten::unique_dim",
      "aten::bincount", "aten::unique_consecutive", "aten::repeat_interleave"};
  return names;
}

bool returns_view(const c10::FunctionSchema& schema) {
  for (const auto& value : schema.returns()) {
    if (value.alias_info() != nullptr && !value.alias_info()->isWrite()) return true;
  }
  return false;
}

Wrapped::How how_of(const c10::OperatorName& name) {
  if (name.name == "aten::copy_") return Wrapped::How::kBetweenOnly;
  const bool into = name.overload_name.find("out") != std::string::npos;
  return sized_by_values().count(name.name) > 0 && !into ? Wrapped::How::kAtOnce
                                                         : Wrapped::How::kQueued;
}

void wrap_all(torch::Library& library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::") || without_numbers().count(name.name) > 0) continue;
    const auto op = dispatcher.findSchema(name);
    // copy_ is registered for all devices at once.
    const bool is_copy = name.name == "aten::copy_";
    if (!op || (!is_copy && !op->hasKernelForDispatchKey(c10::DispatchKey::CUDA))) continue;
    if (returns_view(op->schema())) continue;
    auto cuda = op->getComputedKernelForDispatchKey(c10::DispatchKey::CUDA);
    if (op->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) {
      library.impl(c10::toString(name).c_str(),
                   torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Wrapped>(
                       std::move(cuda), op->getComputedKernelForDispatchKey(c10::DispatchKey::CPU),
                       op->schema(), how_of(name))));
    } else {
      library.impl(c10::toString(name).c_str(),
                   torch::CppFunction::makeFromBoxedFunctor(
                       std::make_unique<WithoutNumbers>(std::move(cuda))));
    }
  }
}

/// When this library is loaded: torch's own kernels are registered by then.
const struct Install {
  Install() {
    c10::WarningUtils::set_warnAlways(false);
    // Never destroyed: the registrations last as long as the process.
    auto* host =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    host->impl("mm.dtype", &wide_mm);
    host->impl("addmm.dtype_out", &wide_addmm);
    host->impl("bmm.dtype", &wide_bmm);
    host->impl("_fused_rms_norm_backward", &rms_norm_backward);
    auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA,
                                       __FILE__, __LINE__);
    wrap_all(*library);
    if (!computes) return;
    // There are CPU kernels for the formula of attention only.
    auto& context = at::globalContext();
    context.setSDPUseCuDNN(false);
    context.setSDPUseFlash(false);
    context.setSDPUseMemEfficient(false);
    context.setUserEnabledCuDNN(false);
  }
} install;

}  // namespace
}  // namespace ddp::test::fake_cuda
