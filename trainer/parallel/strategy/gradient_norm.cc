#include "trainer/parallel/strategy/gradient_norm.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "trainer/runtime/own_kernels.h"
#include "trainer/runtime/parallel_for.h"

namespace ddp::train {
namespace {

/// One block of one gradient.
struct Piece {
  const float* data;
  int64_t size;
};

// 16 sums, each over every 16th element, then added in order: a fixed order that compilers turn
// into vector instructions. The square of a float is exact in float64, so it makes no difference
// whether they use a fused multiply-add.
__attribute__((always_inline)) inline double sum_of_squares(Piece piece) {
  constexpr int64_t kLanes = 16;
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= piece.size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(piece.data[i + lane]);
      sums[lane] += value * value;
    }
  }
  for (int64_t lane = 0; i < piece.size; ++i, ++lane) {
    const auto value = static_cast<double>(piece.data[i]);
    sums[lane] += value * value;
  }
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

double plain_sum_of_squares(Piece piece) { return sum_of_squares(piece); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) double avx2_sum_of_squares(Piece piece) {
  return sum_of_squares(piece);
}
bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }
#else
double avx2_sum_of_squares(Piece piece) { return sum_of_squares(piece); }
bool has_avx2() { return false; }
#endif

std::vector<Piece> pieces_of(const std::vector<torch::Tensor>& flat) {
  std::vector<Piece> pieces;
  for (const auto& gradient : flat) {
    const float* data = gradient.const_data_ptr<float>();
    for (int64_t at = 0; at < gradient.numel(); at += kNormBlock)
      pieces.push_back({data + at, std::min(kNormBlock, gradient.numel() - at)});
  }
  return pieces;
}

torch::Tensor sums_on_cpu(const std::vector<torch::Tensor>& flat) {
  const auto pieces = pieces_of(flat);
  auto sums = torch::empty({static_cast<int64_t>(pieces.size())}, torch::kFloat64);
  auto* const out = sums.mutable_data_ptr<double>();
  const auto sum = has_avx2() ? avx2_sum_of_squares : plain_sum_of_squares;
  constexpr int64_t kBlocksPerTask = 64;
  const auto work = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = sum(pieces[static_cast<std::size_t>(i)]);
  };
  parallel_for(sums.numel(), kBlocksPerTask, at::get_num_threads(), work);
  return sums;
}

/// Trainer's own kernel (model/ops/cuda/kernels.cu), if it is loaded.
const auto& sums_kernel() {
  using Operator = c10::TypedOperatorHandle<torch::Tensor(at::TensorList)>;
  static std::optional<Operator> found;
  if (found) return found;  // a later job of a sweep may load it
  const auto op = c10::Dispatcher::singleton().findSchema({"ddp_run::sums_of_squares", ""});
  if (op && op->hasKernelForDispatchKey(c10::DispatchKey::CUDA))
    found = op->typed<torch::Tensor(at::TensorList)>();
  return found;
}

// One kernel of torch's for all whole blocks of a gradient, and one for all the rest together.
torch::Tensor sums_by_torch(const std::vector<torch::Tensor>& flat) {
  std::vector<torch::Tensor> rests;
  for (const auto& gradient : flat) {
    const int64_t whole = gradient.numel() / kNormBlock * kNormBlock;
    if (whole < gradient.numel())
      rests.push_back(gradient.narrow(0, whole, gradient.numel() - whole));
  }
  const auto rest_norms = rests.empty() ? rests : at::_foreach_norm(rests, 2.0, torch::kFloat64);
  std::vector<torch::Tensor> norms;
  std::size_t rest = 0;
  for (const auto& gradient : flat) {
    const int64_t blocks = gradient.numel() / kNormBlock;
    if (blocks > 0) {
      norms.push_back(at::linalg_vector_norm(
          gradient.narrow(0, 0, blocks * kNormBlock).view({blocks, kNormBlock}), 2.0,
          at::IntArrayRef{1}, /*keepdim=*/false, torch::kFloat64));
    }
    if (gradient.numel() % kNormBlock != 0) norms.push_back(rest_norms[rest++].view({1}));
  }
  return at::cat(norms).square();
}

}  // namespace

torch::Tensor block_sums_of_squares(const std::vector<torch::Tensor>& gradients) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> flat;
  for (const auto& gradient : gradients) {
    if (gradient.numel() > 0) flat.push_back(gradient.to(torch::kFloat32).reshape({-1}));
  }
  if (flat.empty()) return torch::zeros({0}, torch::kFloat64);
  if (flat.front().is_cpu()) return sums_on_cpu(flat);
  const bool own = own_kernels_in_use && flat.front().is_cuda() && sums_kernel();
  return own ? sums_kernel()->call(flat) : sums_by_torch(flat);
}

torch::Tensor norm_of_block_sums(const torch::Tensor& sums) {
  if (!sums.is_cpu()) return sums.sum().sqrt().to(torch::kFloat32);
  double total = 0.0;
  const auto* const blocks = sums.const_data_ptr<double>();
  for (int64_t i = 0; i < sums.numel(); ++i) total += blocks[i];
  return torch::full({}, static_cast<float>(std::sqrt(total)), torch::kFloat32);
}

torch::Tensor gradient_norm(const std::vector<torch::Tensor>& gradients) {
  const torch::NoGradGuard no_grad;
  return norm_of_block_sums(block_sums_of_squares(gradients));
}

}  // namespace ddp::train
