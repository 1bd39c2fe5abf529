#include "trainer/model/ops/cuda/operators.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>

#include "trainer/model/ops/cuda/kernel_module.h"
#include "trainer/model/ops/cuda/operator_parts.h"

namespace ddp::train {

extern const std::string_view kKernelSource, kCodedSource, kLlamaSource;

namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kThreadsOfWarp = 32;
constexpr unsigned kSharedOfBlock = 16 * kThreadsOfWarp;  // a few numbers of each warp

/// For this process's device; each rank has one.
std::unique_ptr<const KernelModule> kernels;

}  // namespace

CUfunction own_kernel(const char* name) { return kernels->function(name); }

namespace {

at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& targets, int64_t classes) {
  TORCH_CHECK(targets.dim() == 1 && targets.size(0) == logits.size(0) && targets.is_cuda() &&
                  targets.scalar_type() == at::kLong && targets.is_contiguous(),
              "targets must be int64, one for each row of the logits");
  const c10::DeviceGuard device(logits.device());
  auto losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  if (logits.size(0) == 0) return losses;
  const int64_t stride = logits.size(1);
  // Long rows: so few at once that a row is still in the cache when it is read again.
  constexpr int64_t kLong = 8192;
  const unsigned threads = stride < kLong ? kThreads : 1024;
  static const CUfunction kernel = own_kernel("ddp_cross_entropy");
  launch(kernel, static_cast<unsigned>(logits.size(0)), threads, kSharedOfBlock, logits.data_ptr(),
         targets.const_data_ptr(), losses.data_ptr(), classes, stride);
  return losses;
}

/// So that a thread has one vector of four of a row of `columns`, if a block can have that many.
unsigned threads_for_row(int64_t columns) {
  constexpr int64_t kMost = 1024;
  return static_cast<unsigned>(std::clamp<int64_t>((columns / 4 + 31) / 32 * 32, 32, kMost));
}

/// Rows for each block of a kernel that sums over rows into `most` parts: enough blocks to fill a
/// GPU, few enough for their sums to be small. A function of the shape alone, so that all GPUs add
/// in the same order.
int64_t rows_of_block(int64_t rows, int64_t most) {
  return std::max<int64_t>(1, (rows + most - 1) / most);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> add_norm(const at::Tensor& residual,
                                                        const std::optional<at::Tensor>& branch,
                                                        const at::Tensor& weight,
                                                        const std::optional<at::Tensor>& bias,
                                                        double epsilon) {
  const int64_t columns = residual.size(-1);
  check_rows(residual, at::kFloat, residual);
  if (branch) check_rows(*branch, at::kBFloat16, residual);
  check_columns(weight, columns);
  if (bias) check_columns(*bias, columns);
  const c10::DeviceGuard device(residual.device());
  const int64_t rows = residual.numel() / columns;
  const auto sum = branch ? at::empty_like(residual) : at::Tensor();
  const auto y = at::empty_like(residual, at::kBFloat16);
  const auto statistics = at::empty({rows, 2}, residual.options());
  if (rows == 0) return {sum, y, statistics};
  static const CUfunction kernel = own_kernel("ddp_add_norm");
  launch(kernel, static_cast<unsigned>(rows), threads_for_row(columns),
         static_cast<unsigned>(columns) * sizeof(float) + kSharedOfBlock, residual.const_data_ptr(),
         data_or_null(branch), weight.const_data_ptr(), data_or_null(bias),
         branch ? sum.data_ptr() : nullptr, y.data_ptr(), statistics.data_ptr(), columns,
         static_cast<float>(epsilon));
  return {sum, y, statistics};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> add_norm_backward(
    const at::Tensor& dy, const std::optional<at::Tensor>& dsum, const at::Tensor& x,
    const at::Tensor& weight, const at::Tensor& statistics, bool with_bias, bool with_branch) {
  const int64_t columns = x.size(-1);
  const int64_t rows = x.numel() / columns;
  check_rows(x, at::kFloat, x);
  check_rows(dy, at::kBFloat16, x);
  if (dsum) check_rows(*dsum, at::kFloat, x);
  check_columns(weight, columns);
  check_columns(statistics, 2 * rows);
  const c10::DeviceGuard device(x.device());
  const unsigned threads = threads_for_row(columns);
  constexpr int64_t kMultiprocessors = 132;  // of an H100
  const int64_t chunk =
      rows_of_block(rows, std::min<int64_t>(1056, kMultiprocessors * (1024 / threads)));
  const unsigned blocks = blocks_for(rows, chunk);
  const int64_t width = with_bias ? 2 : 1;
  const auto dx = at::empty_like(x);
  const auto dbranch = with_branch ? at::empty_like(x, at::kBFloat16) : at::Tensor();
  const auto parts = at::empty({blocks, width, columns}, x.options());
  if (rows == 0) return {dx, dbranch, parts};
  static const CUfunction kernel = own_kernel("ddp_add_norm_backward");
  launch(kernel, blocks, threads,
         static_cast<unsigned>(width * columns) * sizeof(float) + kSharedOfBlock,
         dy.const_data_ptr(), data_or_null(dsum), x.const_data_ptr(), weight.const_data_ptr(),
         statistics.const_data_ptr(), dx.data_ptr(), with_branch ? dbranch.data_ptr() : nullptr,
         parts.data_ptr(), rows, columns, chunk, with_bias ? 1 : 0);
  return {dx, dbranch, parts};
}

at::Tensor gelu(const at::Tensor& x, bool tanh) {
  check_eights(x, x);
  const c10::DeviceGuard device(x.device());
  auto y = at::empty_like(x);
  if (x.numel() == 0) return y;
  constexpr int64_t kChunk = 4096;
  static const CUfunction kernel = own_kernel("ddp_gelu");
  launch(kernel, blocks_for(x.numel(), kChunk), 256, 0, x.const_data_ptr(), y.data_ptr(), x.numel(),
         kChunk, tanh ? 1 : 0);
  return y;
}

/// How the kernels that sum columns divide [rows, columns] of `wider` times as many columns as `x`.
struct ColumnBlocks {
  explicit ColumnBlocks(const at::Tensor& x, int64_t wider = 1)
      : columns(wider * x.size(-1)), rows(x.numel() / x.size(-1)), chunk(rows_of_block(rows, 128)) {
    check_eights(x, x);
    parts = at::empty({blocks_for(rows, chunk), columns}, x.options().dtype(at::kFloat));
  }
  unsigned count() const { return blocks_for(rows, chunk) * blocks_for(columns, tile); }

  int64_t columns, rows, chunk, tile = 256;
  at::Tensor parts;
};
constexpr unsigned kThreadsOfColumns = 256;
constexpr unsigned kSharedOfColumns = 8 * sizeof(float) * kThreadsOfColumns;

std::tuple<at::Tensor, at::Tensor> gelu_backward(const at::Tensor& dy, const at::Tensor& x,
                                                 bool tanh) {
  check_rows(dy, at::kBFloat16, x);
  const c10::DeviceGuard device(x.device());
  const ColumnBlocks blocks(x);
  const auto dx = at::empty_like(x);
  if (blocks.rows == 0) return {dx, blocks.parts};
  static const CUfunction kernel = own_kernel("ddp_gelu_backward");
  launch(kernel, blocks.count(), kThreadsOfColumns, kSharedOfColumns, dy.const_data_ptr(),
         x.const_data_ptr(), dx.data_ptr(), blocks.parts.data_ptr(), blocks.rows, blocks.columns,
         blocks.chunk, blocks.tile, tanh ? 1 : 0);
  return {dx, blocks.parts};
}

at::Tensor column_sums(const at::Tensor& x) {
  const c10::DeviceGuard device(x.device());
  const ColumnBlocks blocks(x);
  if (blocks.rows == 0) return blocks.parts;
  static const CUfunction kernel = own_kernel("ddp_column_sums");
  launch(kernel, blocks.count(), kThreadsOfColumns, kSharedOfColumns, x.const_data_ptr(),
         blocks.parts.data_ptr(), blocks.rows, blocks.columns, blocks.chunk, blocks.tile);
  return blocks.parts;
}

std::tuple<at::Tensor, at::Tensor> join_thirds(const at::Tensor& a, const at::Tensor& b,
                                               const at::Tensor& c) {
  check_rows(b, at::kBFloat16, a);
  check_rows(c, at::kBFloat16, a);
  const c10::DeviceGuard device(a.device());
  const ColumnBlocks blocks(a, 3);
  const auto joined = at::empty({blocks.rows, blocks.columns}, a.options());
  if (blocks.rows == 0) return {joined, blocks.parts};
  static const CUfunction kernel = own_kernel("ddp_join_thirds");
  launch(kernel, blocks.count(), kThreadsOfColumns, kSharedOfColumns, a.const_data_ptr(),
         b.const_data_ptr(), c.const_data_ptr(), joined.data_ptr(), blocks.parts.data_ptr(),
         blocks.rows, blocks.columns, blocks.chunk, blocks.tile);
  return {joined, blocks.parts};
}

constexpr std::size_t kSquaredTensors = 128;  // of one launch

// As in kernels.cu.
struct SquaredTensors {
  struct Tensor {
    const void* data;
    int64_t size;
  } of[kSquaredTensors];
  unsigned first_block[kSquaredTensors + 1];
};

unsigned squared_blocks(const at::Tensor& tensor) {
  constexpr int64_t kElements = 1024;
  return blocks_for(tensor.numel(), kElements);
}

at::Tensor sums_of_squares(at::TensorList tensors) {
  TORCH_CHECK(!tensors.empty(), "expected a tensor");
  const c10::DeviceGuard device(tensors[0].device());
  int64_t blocks = 0;
  for (const at::Tensor& tensor : tensors) {
    check_columns(tensor, tensor.numel());
    blocks += squared_blocks(tensor);
  }
  auto sums = at::empty({blocks}, tensors[0].options().dtype(at::kDouble));
  auto* out = sums.mutable_data_ptr<double>();
  constexpr unsigned kSumsOfBlock = 16;
  for (std::size_t first = 0; first < tensors.size(); first += kSquaredTensors) {
    SquaredTensors given{};
    const int count = static_cast<int>(std::min(kSquaredTensors, tensors.size() - first));
    for (int i = 0; i < count; ++i) {
      const at::Tensor& tensor = tensors[first + static_cast<std::size_t>(i)];
      given.of[i] = {tensor.const_data_ptr(), tensor.numel()};
      given.first_block[i + 1] = given.first_block[i] + squared_blocks(tensor);
    }
    const unsigned of_launch = given.first_block[count];
    if (of_launch == 0) continue;
    static const CUfunction kernel = own_kernel("ddp_sums_of_squares");
    launch(kernel, blocks_for(of_launch, kSumsOfBlock), kThreads, 0, given, out, count);
    out += of_launch;
  }
  return sums;
}

constexpr std::size_t kTensorsOfLaunch = 64;

// As in kernels.cu.
struct AdamTensors {
  struct Tensor {
    void* weight;
    const void* gradient;
    void* exp_avg;
    void* exp_avg_sq;
    void* copy;
    int64_t size;
  } of[kTensorsOfLaunch];
  unsigned first_block[kTensorsOfLaunch + 1];
};
struct AdamOptions {
  float learning_rate, beta1, beta2, weight_decay, epsilon;
  int decoupled;
};

/// Elements of a tensor that a block of ddp_adam() updates.
constexpr int64_t kAdamChunk = 16384;

/// The operator's tensors at `index`, checked.
AdamTensors::Tensor adam_tensor(at::TensorList weights, at::TensorList gradients,
                                at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                                const c10::List<std::optional<at::Tensor>>& copies,
                                std::size_t index) {
  const at::Tensor& weight = weights[index];
  for (const auto* other : {&gradients[index], &exp_avgs[index], &exp_avg_sqs[index]}) {
    TORCH_CHECK(other->is_cuda() && other->scalar_type() == at::kFloat &&
                    other->strides() == weight.strides() && other->sizes() == weight.sizes(),
                "gradients and averages must be float32 and laid out as their weight");
  }
  TORCH_CHECK(weight.scalar_type() == at::kFloat && weight.is_non_overlapping_and_dense(),
              "weights must be float32 and dense");
  const std::optional<at::Tensor> copy = copies[index];
  TORCH_CHECK(!copy || (copy->scalar_type() == at::kBFloat16 && copy->sizes() == weight.sizes() &&
                        copy->is_contiguous() && weight.is_contiguous()),
              "a copy must be bfloat16 and have its weight's shape");
  return {weight.data_ptr(),
          gradients[index].const_data_ptr(),
          exp_avgs[index].data_ptr(),
          exp_avg_sqs[index].data_ptr(),
          copy ? copy->data_ptr() : nullptr,
          weight.numel()};
}

void adam_(at::TensorList weights, at::TensorList gradients, at::TensorList exp_avgs,
           at::TensorList exp_avg_sqs, const c10::List<std::optional<at::Tensor>>& copies,
           const at::Tensor& step, const at::Tensor& found_inf,
           const std::optional<at::Tensor>& scale, double learning_rate, double beta1, double beta2,
           double weight_decay, double epsilon, bool decoupled) {
  TORCH_CHECK(!weights.empty() && gradients.size() == weights.size() &&
                  exp_avgs.size() == weights.size() && exp_avg_sqs.size() == weights.size() &&
                  copies.size() == weights.size(),
              "expected one of each for each weight");
  check_columns(step, 1);
  check_columns(found_inf, 1);
  if (scale) check_columns(*scale, 1);
  const c10::DeviceGuard device(weights[0].device());
  const AdamOptions options{static_cast<float>(learning_rate), static_cast<float>(beta1),
                            static_cast<float>(beta2),         static_cast<float>(weight_decay),
                            static_cast<float>(epsilon),       decoupled ? 1 : 0};
  for (std::size_t first = 0; first < weights.size(); first += kTensorsOfLaunch) {
    AdamTensors tensors{};
    const std::size_t number = std::min(kTensorsOfLaunch, weights.size() - first);
    for (std::size_t i = 0; i < number; ++i) {
      tensors.of[i] = adam_tensor(weights, gradients, exp_avgs, exp_avg_sqs, copies, first + i);
      tensors.first_block[i + 1] =
          tensors.first_block[i] + blocks_for(tensors.of[i].size, kAdamChunk);
    }
    const unsigned blocks = tensors.first_block[number];
    if (blocks == 0) continue;
    static const CUfunction kernel = own_kernel("ddp_adam");
    launch(kernel, blocks, kThreads, kSharedOfBlock, tensors, options, step.const_data_ptr(),
           found_inf.const_data_ptr(), data_or_null(scale), kAdamChunk, beta1, beta2);
  }
}

void register_operators() {
  static torch::Library cuda(torch::Library::IMPL, "ddp_run", c10::DispatchKey::CUDA, __FILE__,
                             __LINE__);
  cuda.impl("cross_entropy_", cross_entropy_);
  cuda.impl("add_norm", add_norm);
  cuda.impl("add_norm_backward", add_norm_backward);
  cuda.impl("gelu", gelu);
  cuda.impl("gelu_backward", gelu_backward);
  cuda.impl("column_sums", column_sums);
  cuda.impl("join_thirds", join_thirds);
  cuda.impl("sums_of_squares", sums_of_squares);
  cuda.impl("adam_", adam_);
  register_coded_operators(cuda);
  register_llama_operators(cuda);
}

}  // namespace
}  // namespace ddp::train

TORCH_LIBRARY(ddp_run, library) {
  library.def("cross_entropy_(Tensor(a!) logits, Tensor targets, int classes) -> Tensor");
  library.def(
      "add_norm(Tensor residual, Tensor? branch, Tensor weight, Tensor? bias, float epsilon) -> "
      "(Tensor, Tensor, Tensor)");
  library.def(
      "add_norm_backward(Tensor dy, Tensor? dsum, Tensor x, Tensor weight, Tensor statistics, "
      "bool with_bias, bool with_branch) -> (Tensor, Tensor, Tensor)");
  library.def("gelu(Tensor x, bool tanh) -> Tensor");
  library.def("gelu_backward(Tensor dy, Tensor x, bool tanh) -> (Tensor, Tensor)");
  library.def("column_sums(Tensor x) -> Tensor");
  library.def("join_thirds(Tensor a, Tensor b, Tensor c) -> (Tensor, Tensor)");
  library.def("sums_of_squares(Tensor[] tensors) -> Tensor");
  library.def(
      "adam_(Tensor(a!)[] weights, Tensor[] gradients, Tensor(b!)[] exp_avgs, "
      "Tensor(c!)[] exp_avg_sqs, Tensor(d!)?[] copies, Tensor step, Tensor found_inf, "
      "Tensor? scale, float learning_rate, float beta1, float beta2, float weight_decay, float "
      "epsilon, "
      "bool decoupled) -> ()");
}

extern "C" __attribute__((visibility("default"))) const char* ddp_trainer_load_operators(
    const char* folder) {
  using namespace ddp::train;
  static std::string why;
  why.clear();
  try {
    const cudaDeviceProp* device = at::cuda::getCurrentDeviceProperties();
    at::globalContext().lazyInitDevice(c10::kCUDA);
    kernels = std::make_unique<const KernelModule>(
        load_module(std::string(kKernelSource).append(kCodedSource).append(kLlamaSource),
                    device->major, device->minor, folder));
    register_operators();
  } catch (const std::exception& error) {
    why = error.what();
  }
  return why.c_str();
}
