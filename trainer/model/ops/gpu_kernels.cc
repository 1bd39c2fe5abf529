#include "trainer/model/ops/gpu_kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <type_traits>
#include <utility>

#include "trainer/model/ops/cuda/operators.h"
#include "trainer/model/ops/quantized_weight.h"
#include "trainer/model/ops/weight_codec.h"
#include "trainer/runtime/dynamic_map.h"
#include "trainer/runtime/files/module_path.h"
#include "trainer/runtime/own_kernels.h"

namespace ddp::train::gpu {
namespace {

constexpr const char* kFile = "libtrainer_kernels.so";

/// "" where there is no home: nothing is kept then.
std::string cache_folder() {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::filesystem::path(text == nullptr ? "" : text);
  };
  if (const auto cache = value("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "ddp_run";
  if (const auto home = value("HOME"); home.is_absolute()) return home / ".cache" / "ddp_run";
  return "";
}

std::string g_failure;

/// Calls the operator `name`, whose signature is that of `function` unless `Signature` is given.
template <auto function, class Signature = std::remove_pointer_t<decltype(function)>,
          class... Arguments>
auto call(const char* name, Arguments&&... arguments) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
  return op.call(std::forward<Arguments>(arguments)...);
}

std::string load() {
  const auto path = find_module(kFile);
  if (path.empty()) return std::string("this trainer was built without ") + kFile;
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return ::dlerror();
  const auto load = reinterpret_cast<LoadOperators>(::dlsym(library, kLoadOperators));
  if (load == nullptr) return path.string() + " has no operators";
  return load(cache_folder().c_str());
}

}  // namespace

std::string load_kernels() {
  static bool in_process = false;  // an earlier job of a sweep has registered them
  g_failure = in_process ? "" : load();
  in_process = own_kernels_in_use = g_failure.empty();
  return g_failure;
}

void leave_out_kernels() {
  g_failure.clear();
  own_kernels_in_use = false;
}

bool loaded() { return own_kernels_in_use; }

const std::string& load_failure() { return g_failure; }

bool takes_rows_of(int64_t columns) {
  constexpr int64_t kMultiple = 8;
  return columns % kMultiple == 0 && loaded();
}

bool takes_cross_entropy(const torch::Tensor& logits) {
  return logits.is_cuda() && logits.scalar_type() == torch::kBFloat16 && logits.dim() == 2 &&
         logits.is_contiguous() && takes_rows_of(logits.size(1));
}

torch::Tensor cross_entropy_(torch::Tensor& logits, const torch::Tensor& targets, int64_t classes) {
  return call<cross_entropy_>("ddp_run::cross_entropy_", logits, targets, classes);
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> add_norm_forward(
    const torch::Tensor& residual, const std::optional<torch::Tensor>& branch,
    const torch::Tensor& weight, const std::optional<torch::Tensor>& bias, double epsilon) {
  return call<add_norm_forward>("ddp_run::add_norm", residual, branch, weight, bias, epsilon);
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> add_norm_backward(
    const torch::Tensor& dy, const std::optional<torch::Tensor>& dsum, const torch::Tensor& x,
    const torch::Tensor& weight, const torch::Tensor& statistics, bool with_bias,
    bool with_branch) {
  return call<add_norm_backward>("ddp_run::add_norm_backward", dy, dsum, x, weight, statistics,
                                 with_bias, with_branch);
}

torch::Tensor gelu(const torch::Tensor& x, bool tanh) {
  return call<gelu>("ddp_run::gelu", x, tanh);
}

std::tuple<torch::Tensor, torch::Tensor> gelu_backward(const torch::Tensor& dy,
                                                       const torch::Tensor& x, bool tanh) {
  return call<gelu_backward>("ddp_run::gelu_backward", dy, x, tanh);
}

torch::Tensor column_sums(const torch::Tensor& x) {
  return call<column_sums>("ddp_run::column_sums", x);
}

std::tuple<torch::Tensor, torch::Tensor> join_thirds(const torch::Tensor& a, const torch::Tensor& b,
                                                     const torch::Tensor& c) {
  return call<join_thirds>("ddp_run::join_thirds", a, b, c);
}

bool takes_codes(const QuantizedWeight& weight) {
  return weight.codes.is_cuda() && takes_rows_of(weight.columns()) &&
         (!weight.is_nf4() || weight.columns() % kNf4Block == 0);
}

namespace {

using MaybeTensor = std::optional<torch::Tensor>;
using Dequantize = torch::Tensor(const torch::Tensor&, const torch::Tensor&, const MaybeTensor&,
                                 const MaybeTensor&, at::ArrayRef<double>, int64_t, int64_t,
                                 torch::ScalarType);
using CodedProduct = torch::Tensor(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&,
                                   const MaybeTensor&, const MaybeTensor&, at::ArrayRef<double>);

/// The values of NF4's codes and of absmax's.
const std::vector<double>& code_tables() {
  static const std::vector<double> tables = [] {
    std::vector<double> values(kNf4Values.begin(), kNf4Values.end());
    const auto& map = DynamicMap::signed_map().values();
    values.insert(values.end(), map.begin(), map.end());
    return values;
  }();
  return tables;
}

MaybeTensor if_given(const torch::Tensor& x) { return x.defined() ? MaybeTensor(x) : std::nullopt; }

}  // namespace

torch::Tensor dequantize(const QuantizedWeight& weight, int64_t first, int64_t last,
                         torch::ScalarType type) {
  return call<dequantize, Dequantize>("ddp_run::dequantize", weight.codes, weight.absmax,
                                      if_given(weight.absmax_scales), if_given(weight.absmax_mean),
                                      code_tables(), first, last, type);
}

torch::Tensor coded_product(const torch::Tensor& x, const QuantizedWeight& weight) {
  return call<coded_product, CodedProduct>("ddp_run::coded_product", x, weight.codes, weight.absmax,
                                           if_given(weight.absmax_scales),
                                           if_given(weight.absmax_mean), code_tables());
}

torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up) {
  return call<swiglu>("ddp_run::swiglu", gate, up);
}

std::tuple<torch::Tensor, torch::Tensor> swiglu_backward(const torch::Tensor& dy,
                                                         const torch::Tensor& gate,
                                                         const torch::Tensor& up) {
  return call<swiglu_backward>("ddp_run::swiglu_backward", dy, gate, up);
}

std::tuple<torch::Tensor, torch::Tensor> rotate(const torch::Tensor& q, const torch::Tensor& k,
                                                const torch::Tensor& cos, const torch::Tensor& sin,
                                                bool backward) {
  return call<rotate>("ddp_run::rotate", q, k, cos, sin, backward);
}

}  // namespace ddp::train::gpu
