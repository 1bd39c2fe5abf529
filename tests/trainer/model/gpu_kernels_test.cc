// The GPU's kernels as the host's compiler makes them of the same source, with real threads as a
// block's.
#include <torch/torch.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

#include "trainer/model/ops/cuda/host_cuda.h"

#include "trainer/model/ops/cuda/kernels.cu"

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
  host_cuda::run(
      static_cast<unsigned>(logits.size(0)), threads, threads * sizeof(Exponentials), [&] {
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

TEST_CASE("a target that is no class makes the GPU's loss NaN") {
  const auto logits = torch::zeros({1, 16}, torch::kBFloat16);
  const auto [losses, gradient] =
      by_kernel(logits, torch::full({1}, 12, torch::kInt64), /*classes=*/12, 8);
  CHECK(std::isnan(losses.item<float>()));
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

namespace {

bfloat16* halves(const torch::Tensor& x) {
  return x.defined() ? reinterpret_cast<bfloat16*>(x.data_ptr()) : nullptr;
}
float* floats(const torch::Tensor& x) { return x.defined() ? x.data_ptr<float>() : nullptr; }

struct NormInputs {
  torch::Tensor residual;
  torch::Tensor branch;  ///< bfloat16, undefined: none.
  torch::Tensor weight;
  torch::Tensor bias;  ///< Undefined: RMSNorm.
};

struct NormResults {
  torch::Tensor sum, y;
  torch::Tensor dresidual, dbranch, dweight, dbias;
};

constexpr float kEpsilon = 1e-5F;

/// `dsum`: undefined if nothing else uses the sum.
NormResults by_kernels(const NormInputs& in, const torch::Tensor& dy, const torch::Tensor& dsum,
                       unsigned threads, int64_t chunk) {
  const int64_t rows = in.residual.size(0);
  const int64_t columns = in.residual.size(1);
  const auto like = [&](const torch::Tensor& x) {
    return x.defined() ? torch::full_like(x, 777.0) : torch::Tensor();
  };
  const auto sum = in.branch.defined() ? like(in.residual) : torch::Tensor();
  const auto y = torch::full_like(in.residual, 777.0, torch::kBFloat16);
  const auto statistics = torch::empty({rows, 2});
  const std::size_t row_bytes = static_cast<std::size_t>(columns) * sizeof(float);
  host_cuda::run(static_cast<unsigned>(rows), threads, row_bytes + 64 * sizeof(Sums), [&] {
    ddp_add_norm(floats(in.residual), halves(in.branch), floats(in.weight), floats(in.bias),
                 floats(sum), halves(y), floats(statistics), columns, kEpsilon);
  });
  NormResults out{sum.defined() ? sum : in.residual, y, like(in.residual), like(in.branch), {}, {}};
  const int64_t blocks = (rows + chunk - 1) / chunk;
  const int64_t width = in.bias.defined() ? 2 : 1;
  const auto parts = torch::full({blocks, width, columns}, 777.0);
  host_cuda::run(static_cast<unsigned>(blocks), threads,
                 static_cast<std::size_t>(width) * row_bytes + 64 * sizeof(Sums), [&] {
                   ddp_add_norm_backward(halves(dy), floats(dsum), floats(out.sum),
                                         floats(in.weight), floats(statistics),
                                         floats(out.dresidual), halves(out.dbranch), floats(parts),
                                         rows, columns, chunk, in.bias.defined() ? 1 : 0);
                 });
  const auto sums = parts.sum(0);
  out.dweight = sums[0];
  if (width == 2) out.dbias = sums[1];
  return out;
}

/// Torch's, in float64.
NormResults exact(const NormInputs& in, const torch::Tensor& dy, const torch::Tensor& dsum) {
  const auto leaf = [](const torch::Tensor& x) {
    return x.defined() ? x.to(torch::kFloat64).detach().set_requires_grad(true) : torch::Tensor();
  };
  const auto residual = leaf(in.residual), branch = leaf(in.branch), weight = leaf(in.weight),
             bias = leaf(in.bias);
  const auto sum = branch.defined() ? residual + branch : residual * 1.0;
  const auto y = bias.defined()
                     ? at::layer_norm(sum, {sum.size(1)}, weight, bias, kEpsilon)
                     : at::rms_norm(sum, {sum.size(1)}, weight, static_cast<double>(kEpsilon));
  auto loss = (y * dy.to(torch::kFloat64)).sum();
  if (dsum.defined()) loss = loss + (sum * dsum.to(torch::kFloat64)).sum();
  loss.backward();
  const auto gradient = [](const torch::Tensor& x) { return x.defined() ? x.grad() : x; };
  return {sum.detach(),     y.detach(),       gradient(residual),
          gradient(branch), gradient(weight), gradient(bias)};
}

/// Within what float32 and one rounding to the type leave.
bool agrees(const torch::Tensor& ours, const torch::Tensor& theirs) {
  if (!theirs.defined()) return !ours.defined();
  const double relative = ours.scalar_type() == torch::kBFloat16 ? 0.00391 : 3e-6;
  return torch::allclose(ours.to(torch::kFloat64), theirs, relative, 5e-6);
}

}  // namespace

TEST_CASE("the GPU's residual addition and norm, and their gradients, are torch's") {
  torch::manual_seed(3);
  // Each way to call it on one block, then all sizes. 192: one vector of a row for each thread, and
  // a number of warps other than a power of two.
  const bool sizes = GENERATE(false, true);
  const bool with_branch = sizes || GENERATE(true, false);
  const bool with_bias = sizes || GENERATE(true, false);
  const bool with_dsum = sizes || GENERATE(true, false);
  const int64_t columns = sizes ? GENERATE(4, 100, 768) : 100;
  const unsigned threads = sizes ? GENERATE(1U, 8U, 64U, 192U) : 8U;
  INFO(columns << " columns, " << threads << " threads, branch " << with_branch << ", bias "
               << with_bias << ", dsum " << with_dsum);
  const int64_t rows = 7;
  const NormInputs in{
      torch::randn({rows, columns}) * 3 + 1,
      with_branch ? torch::randn({rows, columns}).to(torch::kBFloat16) : torch::Tensor(),
      torch::randn({columns}), with_bias ? torch::randn({columns}) : torch::Tensor()};
  const auto dy = torch::randn({rows, columns}).to(torch::kBFloat16);
  const auto dsum = with_dsum ? torch::randn({rows, columns}) : torch::Tensor();
  const auto ours = by_kernels(in, dy, dsum, threads, /*chunk=*/3);
  const auto theirs = exact(in, dy, dsum);
  CHECK(agrees(ours.sum, theirs.sum));
  CHECK(agrees(ours.y, theirs.y));
  CHECK(agrees(ours.dresidual, theirs.dresidual));
  CHECK(agrees(ours.dbranch, theirs.dbranch));
  CHECK(agrees(ours.dweight, theirs.dweight));
  CHECK(agrees(ours.dbias, theirs.dbias));
}

TEST_CASE("a row that is far from zero keeps its digits in the GPU's LayerNorm") {
  torch::manual_seed(5);
  const NormInputs in{torch::randn({2, 768}) + 1000, {}, torch::ones({768}), torch::zeros({768})};
  const auto dy = torch::randn({2, 768}).to(torch::kBFloat16);
  const auto ours = by_kernels(in, dy, {}, 8, 2);
  const auto theirs = exact(in, dy, {});
  CHECK(torch::allclose(ours.y.to(torch::kFloat64), theirs.y, 0.00391, 1e-3));
  CHECK(torch::allclose(ours.dresidual.to(torch::kFloat64), theirs.dresidual, 1e-3, 1e-3));
}

TEST_CASE("the GPU's GELU is torch's") {
  const bool tanh = GENERATE(true, false);
  const unsigned threads = GENERATE(1U, 64U);
  const auto x = torch::arange(-12.0, 12.0, 1.0 / 128).to(torch::kBFloat16);
  const auto y = torch::full_like(x, 777.0);
  host_cuda::run(3, threads, 0,
                 [&] { ddp_gelu(halves(x), halves(y), x.numel(), 1024, tanh ? 1 : 0); });
  CHECK(agrees(y, at::gelu(x.to(torch::kFloat64), tanh ? "tanh" : "none")));
}

TEST_CASE("the GPU's GELU gradient and the sums for the bias are torch's") {
  torch::manual_seed(9);
  const bool tanh = GENERATE(true, false);
  const int64_t columns = GENERATE(8, 104, 520);
  const unsigned threads = GENERATE(1U, 8U, 96U);
  constexpr int64_t kRows = 10, kChunk = 4, kTile = 256;
  const auto blocks = static_cast<unsigned>(3 * ((columns + kTile - 1) / kTile));
  const std::size_t shared = 8 * sizeof(float) * threads;
  const auto x = (torch::randn({kRows, columns}) * 3).to(torch::kBFloat16);
  const auto dy = torch::randn({kRows, columns}).to(torch::kBFloat16);
  const auto dx = torch::full_like(x, 777.0);
  const auto parts = torch::full({3, columns}, 777.0);
  host_cuda::run(blocks, threads, shared, [&] {
    ddp_gelu_backward(halves(dy), halves(x), halves(dx), floats(parts), kRows, columns, kChunk,
                      kTile, tanh ? 1 : 0);
  });
  const auto expected =
      at::gelu_backward(dy.to(torch::kFloat64), x.to(torch::kFloat64), tanh ? "tanh" : "none");
  CHECK(agrees(dx, expected));
  CHECK(torch::allclose(parts.sum(0), dx.to(torch::kFloat32).sum(0), 1e-5, 1e-5));

  parts.fill_(777.0);
  host_cuda::run(blocks, threads, shared,
                 [&] { ddp_column_sums(halves(x), floats(parts), kRows, columns, kChunk, kTile); });
  CHECK(torch::allclose(parts.sum(0), x.to(torch::kFloat32).sum(0), 1e-5, 1e-5));
}

TEST_CASE("the GPU's joined thirds and their sums for the bias are torch's") {
  torch::manual_seed(11);
  const int64_t third = GENERATE(8, 104, 520);
  const unsigned threads = GENERATE(1U, 8U, 96U);
  constexpr int64_t kRows = 10, kChunk = 4, kTile = 256;
  const int64_t columns = 3 * third;
  std::vector<torch::Tensor> from;
  for (int i = 0; i < 3; ++i) from.push_back(torch::randn({kRows, third}).to(torch::kBFloat16));
  const auto joined = torch::full({kRows, columns}, 777.0, torch::kBFloat16);
  const auto parts = torch::full({3, columns}, 777.0);
  host_cuda::run(static_cast<unsigned>(3 * ((columns + kTile - 1) / kTile)), threads,
                 8 * sizeof(float) * threads, [&] {
                   ddp_join_thirds(halves(from[0]), halves(from[1]), halves(from[2]),
                                   halves(joined), floats(parts), kRows, columns, kChunk, kTile);
                 });
  CHECK(joined.equal(at::cat(from, 1)));
  CHECK(torch::allclose(parts.sum(0), joined.to(torch::kFloat32).sum(0), 1e-5, 1e-5));
}

namespace {

struct AdamState {
  torch::Tensor weight, gradient, exp_avg, exp_avg_sq;
};

/// A tensor of `size` elements that begins `offset` elements after an aligned place.
torch::Tensor at_offset(int64_t size, int64_t offset) {
  return torch::randn({size + offset}).narrow(0, offset, size);
}

std::vector<AdamState> adam_states() {
  std::vector<AdamState> states;
  for (const auto& [size, offset] : {std::pair{1, 0}, {64, 0}, {37, 0}, {21, 3}, {8, 4}}) {
    states.push_back({at_offset(size, offset), at_offset(size, offset),
                      at_offset(size, offset) * 0.1, at_offset(size, offset).square()});
    states.back().gradient[0] = 0.0;
  }
  return states;
}

std::vector<AdamState> copied(const std::vector<AdamState>& states,
                              torch::ScalarType type = torch::kFloat32) {
  std::vector<AdamState> result;
  const auto copy = [type](const torch::Tensor& x) {
    return x.to(type, /*non_blocking=*/false, /*copy=*/true);
  };
  for (const auto& [weight, gradient, exp_avg, exp_avg_sq] : states)
    result.push_back({copy(weight), copy(gradient), copy(exp_avg), copy(exp_avg_sq)});
  return result;
}

constexpr AdamOptions kAdam{0.01F, 0.9F, 0.999F, 0.1F, 1e-8F, 1};

/// In place; returns the copies, none of the second tensor.
std::vector<torch::Tensor> adam_by_kernel(const std::vector<AdamState>& states,
                                          const AdamOptions& options, float step, float found_inf,
                                          unsigned threads, const float* scale = nullptr) {
  constexpr long long kChunk = 16;
  AdamTensors tensors{};
  std::vector<torch::Tensor> copies;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const auto& [weight, gradient, exp_avg, exp_avg_sq] = states[i];
    copies.push_back(i == 1 ? torch::Tensor() : torch::full_like(weight, 7.0, torch::kBFloat16));
    tensors.of[i] = {floats(weight),     floats(gradient),  floats(exp_avg),
                     floats(exp_avg_sq), halves(copies[i]), weight.numel()};
    tensors.first_block[i + 1] =
        tensors.first_block[i] + static_cast<unsigned>((weight.numel() + kChunk - 1) / kChunk);
  }
  host_cuda::run(tensors.first_block[states.size()], threads, sizeof(Sums),
                 [&] { ddp_adam(tensors, options, &step, &found_inf, scale, kChunk, 0.9, 0.999); });
  return copies;
}

}  // namespace

TEST_CASE("the GPU's update of many tensors is torch's, and writes their copies") {
  torch::manual_seed(11);
  const bool decoupled = GENERATE(true, false);
  const unsigned threads = GENERATE(1U, 8U, 64U);
  INFO("AdamW " << decoupled << ", " << threads << " threads");
  AdamOptions options = kAdam;
  options.decoupled = decoupled ? 1 : 0;
  const auto ours = adam_states();
  for (const float step : {1.0F, 2.0F, 3.0F}) {
    const auto theirs = copied(ours, torch::kFloat64);
    const auto copies = adam_by_kernel(ours, options, step, 0.0F, threads);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      INFO("tensor " << i << ", step " << step);
      const auto& [weight, gradient, exp_avg, exp_avg_sq] = theirs[i];
      const auto by_torch = [&](auto&& update) {
        update(std::vector{weight}, std::vector{gradient}, std::vector{exp_avg},
               std::vector{exp_avg_sq}, at::TensorList{}, std::vector{torch::full({}, step)}, 0.01,
               0.9, 0.999, 0.1, 1e-8, false, false);
      };
      if (decoupled) {
        by_torch([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
      } else {
        by_torch([](auto&&... arguments) { at::_fused_adam_(arguments...); });
      }
      CHECK(torch::allclose(ours[i].weight.to(torch::kFloat64), weight, 2e-6, 1e-6));
      CHECK(torch::allclose(ours[i].exp_avg.to(torch::kFloat64), exp_avg, 2e-6, 1e-6));
      CHECK(torch::allclose(ours[i].exp_avg_sq.to(torch::kFloat64), exp_avg_sq, 2e-6, 1e-6));
      if (copies[i].defined()) CHECK(torch::equal(copies[i], ours[i].weight.to(torch::kBFloat16)));
    }
  }
}

TEST_CASE("the GPU's update scales gradients as a pass before it would, bit for bit") {
  const auto scaled = adam_states();
  const auto before = copied(scaled);
  const float scale = 0.37F;
  for (const auto& state : before) state.gradient.mul_(scale);
  adam_by_kernel(scaled, kAdam, 1.0F, 0.0F, 8, &scale);
  adam_by_kernel(before, kAdam, 1.0F, 0.0F, 8);
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    CHECK(torch::equal(scaled[i].weight, before[i].weight));
    CHECK(torch::equal(scaled[i].exp_avg, before[i].exp_avg));
    CHECK(torch::equal(scaled[i].exp_avg_sq, before[i].exp_avg_sq));
  }
}

TEST_CASE("an update on the GPU that found an infinity changes nothing, copies included") {
  const auto states = adam_states();
  const auto before = copied(states);
  const auto copies = adam_by_kernel(states, kAdam, 1.0F, 1.0F, 8);
  for (std::size_t i = 0; i < states.size(); ++i) {
    CHECK(torch::equal(states[i].weight, before[i].weight));
    CHECK(torch::equal(states[i].exp_avg, before[i].exp_avg));
    CHECK(torch::equal(states[i].exp_avg_sq, before[i].exp_avg_sq));
    if (copies[i].defined()) CHECK(copies[i].eq(7.0).all().item<bool>());
  }
}

namespace {

torch::Tensor sums_by_kernel(const std::vector<torch::Tensor>& gradients, unsigned threads) {
  SquaredTensors tensors{};
  const int count = static_cast<int>(gradients.size());
  for (int i = 0; i < count; ++i) {
    const auto& gradient = gradients[static_cast<std::size_t>(i)];
    tensors.of[i] = {floats(gradient), gradient.numel()};
    tensors.first_block[i + 1] =
        tensors.first_block[i] + static_cast<unsigned>((gradient.numel() + 1023) / 1024);
  }
  const unsigned blocks = tensors.first_block[count];
  auto sums = torch::full({static_cast<int64_t>(blocks)}, 777.0, torch::kFloat64);
  host_cuda::run((blocks + 15) / 16, threads, 0,
                 [&] { ddp_sums_of_squares(tensors, sums.data_ptr<double>(), count); });
  return sums;
}

}  // namespace

TEST_CASE("the GPU's sums of squares are those of blocks of 1,024, wherever a tensor begins") {
  torch::manual_seed(13);
  const unsigned threads = GENERATE(1U, 8U, 64U);
  std::vector<torch::Tensor> gradients, elsewhere;
  std::vector<torch::Tensor> exact;
  for (const int64_t size : {1, 1024, 0, 3001, 2048, 1027}) {
    gradients.push_back(torch::randn({size}) * 1e3);
    elsewhere.push_back(at_offset(size, 3).copy_(gradients.back()));
    for (const auto& block : gradients.back().to(torch::kFloat64).split(1024))
      if (block.numel() > 0) exact.push_back(block.square().sum());
  }
  const auto sums = sums_by_kernel(gradients, threads);
  CHECK(torch::allclose(sums, torch::stack(exact), 1e-14, 0.0));
  CHECK(torch::equal(sums_by_kernel(elsewhere, threads), sums));
  // A block's sum does not depend on what is before it.
  CHECK(torch::equal(sums_by_kernel({gradients[3].narrow(0, 1024, 1977)}, threads),
                     sums.narrow(0, 3, 2)));
}

}  // namespace ddp::test
