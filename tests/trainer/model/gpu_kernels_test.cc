// The GPU's kernels as the host's compiler makes them of the same source, with real threads as a
// block's.
#include <torch/torch.h>

#include <cmath>

#include "tests/support/catch.h"

#include "trainer/model/cuda/host_cuda.h"

#include "trainer/model/cuda/kernels.cu"

namespace ddp::test {
namespace {

struct CrossEntropy {
  torch::Tensor losses;
  torch::Tensor gradient;
};

CrossEntropy by_kernel(const torch::Tensor& logits, const torch::Tensor& targets, int64_t classes,
                       unsigned threads) {
  CrossEntropy result{torch::full({logits.size(0)}, 777.0), logits.clone()};
  auto* rows = reinterpret_cast<bfloat16*>(result.gradient.data_ptr());
  const auto* target = reinterpret_cast<const long long*>(targets.const_data_ptr<int64_t>());
  host_cuda::run(static_cast<unsigned>(logits.size(0)), threads, [&] {
    ddp_cross_entropy(rows, target, result.losses.data_ptr<float>(), classes, logits.size(1));
  });
  return result;
}

/// In float64, of the same bfloat16 logits.
CrossEntropy by_torch(const torch::Tensor& logits, const torch::Tensor& targets, int64_t classes) {
  auto exact = logits.to(torch::kFloat64).set_requires_grad(true);
  const auto losses = at::cross_entropy_loss(exact.narrow(1, 0, classes), targets, {},
                                             at::Reduction::None, /*ignore_index=*/-1);
  losses.sum().backward();
  return {losses.detach(), exact.grad()};
}

}  // namespace

TEST_CASE("the GPU's cross-entropy and its gradient are torch's, on blocks of any size") {
  torch::manual_seed(7);
  const int64_t classes = GENERATE(5, 1003, 1008);
  const unsigned threads = GENERATE(1U, 8U, 64U);
  INFO(classes << " classes, " << threads << " threads");
  const int64_t stride = (classes + 7) / 8 * 8;
  auto logits = (torch::randn({4, stride}) * 4).to(torch::kBFloat16);
  logits[2].fill_(-80.0);  // all equal, and small
  logits[0].narrow(0, 0, 3).fill_(-INFINITY);
  logits[3][1] = 300.0;  // one share of 1
  const auto targets =
      torch::tensor({classes - 1, int64_t{-1}, int64_t{0}, int64_t{1}}, torch::kInt64);

  const auto [losses, gradient] = by_kernel(logits, targets, classes, threads);
  const auto [exact_losses, exact_gradient] = by_torch(logits, targets, classes);

  CHECK(torch::allclose(losses.to(torch::kFloat64), exact_losses, 1e-6, 1e-6));
  CHECK(losses[1].item<float>() == 0.0F);
  // Half a unit in the last of 8 bits, and what float32 leaves of it.
  CHECK(torch::allclose(gradient.to(torch::kFloat64), exact_gradient, 0.00391, 1e-7));
  CHECK(gradient[1].count_nonzero().item<int64_t>() == 0);
  CHECK(gradient.narrow(1, classes, stride - classes).count_nonzero().item<int64_t>() == 0);
}

TEST_CASE("a logit that is not a number makes the GPU's loss and gradient NaN") {
  auto logits = torch::zeros({1, 16}, torch::kBFloat16);
  logits[0][9] = NAN;
  const auto [losses, gradient] = by_kernel(logits, torch::zeros({1}, torch::kInt64), 16, 8);
  CHECK(std::isnan(losses.item<float>()));
  CHECK(gradient.isnan().any().item<bool>());
}

TEST_CASE("the GPU rounds floats to bfloat16 as torch does") {
  const auto floats = torch::cat(
      {torch::randn({100'000}), torch::randn({1000}) * 1e38, torch::randn({1000}) * 1e-39,
       torch::tensor({0.0F, -0.0F, INFINITY, -INFINITY, 3.3895314e38F})});
  const auto expected = floats.to(torch::kBFloat16);
  const auto* bits = reinterpret_cast<const bfloat16*>(expected.const_data_ptr());
  int64_t different = 0;
  for (int64_t i = 0; i < floats.numel(); ++i)
    different += to_bfloat16(floats.const_data_ptr<float>()[i]) != bits[i] ? 1 : 0;
  CHECK(different == 0);
  CHECK(std::isnan(to_float(to_bfloat16(NAN))));
}

}  // namespace ddp::test
