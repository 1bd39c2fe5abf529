// The norm of the gradients: exact enough, and the same bits however it is computed.
#include "trainer/parallel/strategy/gradient_norm.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <cstdint>
#include "tests/support/catch.h"

namespace ddp::train {
namespace {

/// The number of threads is the process's: set back at the end.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

std::vector<torch::Tensor> random_gradients() {
  torch::manual_seed(3);
  return {torch::randn({3 * kNormBlock + 5}), torch::randn({7, 11}), torch::randn({1}),
          torch::randn({kNormBlock}),         torch::randn({0}),     torch::randn({300, 200}).t()};
}

/// By torch, in float64.
double reference(const std::vector<torch::Tensor>& gradients) {
  double sum = 0.0;
  for (const auto& gradient : gradients)
    sum += gradient.to(torch::kFloat64).square().sum().item<double>();
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("the norm is right at the size of GPT-2's embedding, where float32 sums are off") {
  const std::vector<torch::Tensor> gradients = {torch::full({50257, 768}, 1e-3F)};
  const double right = reference(gradients);
  const double float32 = at::_foreach_norm(gradients, 2.0)[0].to(torch::kFloat64).item<double>();
  CHECK(std::abs(float32 / right - 1.0) > 1e-4);
  CHECK(gradient_norm(gradients).item<float>() == static_cast<float>(right));
}

TEST_CASE("every element is counted once") {
  std::vector<torch::Tensor> ones;
  double count = 0.0;
  for (const auto& gradient : random_gradients()) {
    ones.push_back(torch::ones_like(gradient));
    count += static_cast<double>(gradient.numel());
  }
  CHECK(block_sums_of_squares(ones).sum().item<double>() == count);
}

TEST_CASE("the norm is that of float64, blocks and rests together") {
  const auto gradients = random_gradients();
  const auto sums = block_sums_of_squares(gradients);
  int64_t blocks = 0;
  for (const auto& gradient : gradients) blocks += (gradient.numel() + kNormBlock - 1) / kNormBlock;
  REQUIRE(sums.sizes() == torch::IntArrayRef{blocks});
  CHECK(std::sqrt(sums.sum().item<double>()) == Approx(reference(gradients)).epsilon(1e-14));
  CHECK(gradient_norm(gradients).item<float>() == static_cast<float>(reference(gradients)));
}

TEST_CASE("any number of threads gives the same bits") {
  const auto gradients = random_gradients();
  const auto with = [&](int threads) {
    const Threads now(threads);
    return block_sums_of_squares(gradients);
  };
  const auto one = with(1);
  CHECK(torch::equal(with(2), one));
  CHECK(torch::equal(with(4), one));
}

TEST_CASE("shards that are cut between blocks give the same sums as the whole") {
  const auto whole = random_gradients();
  std::vector<torch::Tensor> parts;
  for (const auto& gradient : whole) {
    const auto flat = gradient.reshape({-1});
    const int64_t cut = std::min<int64_t>(flat.numel(), 2 * kNormBlock);
    parts.push_back(flat.narrow(0, 0, cut).clone());
    parts.push_back(flat.narrow(0, cut, flat.numel() - cut).clone());
  }
  CHECK(torch::equal(block_sums_of_squares(parts), block_sums_of_squares(whole)));
}

TEST_CASE("one NaN or Inf makes the norm one") {
  auto gradients = random_gradients();
  gradients[0][kNormBlock + 1] = std::nan("");
  CHECK(std::isnan(gradient_norm(gradients).item<float>()));
  gradients[0][kNormBlock + 1] = -HUGE_VALF;
  CHECK(std::isinf(gradient_norm(gradients).item<float>()));
  CHECK(gradient_norm({}).item<float>() == 0.0F);
}

}  // namespace ddp::train
