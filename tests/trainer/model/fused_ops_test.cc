// The fused CPU operations against the same written with torch's, in float64.
#include "trainer/model/ops/fused_ops.h"

#include <cmath>
#include <functional>
#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"
#include "trainer/model/ops/cpu/kernels.h"
#include "trainer/model/ops/llama_ops.h"

namespace ddp::train {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;
using Operation = std::function<Tensor(const Tensors&)>;

Tensors random_tensors(const std::vector<std::vector<int64_t>>& shapes, double spread = 1.0) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  Tensors result;
  for (const auto& shape : shapes)
    result.push_back(torch::randn(shape, generator, torch::kFloat32).mul_(spread));
  return result;
}

/// Output and gradients, for an upstream gradient that differs from element to element.
Tensors results(const Operation& operation, const Tensors& values, torch::ScalarType type) {
  Tensors inputs;
  for (const auto& value : values) inputs.push_back(value.to(type).clone().requires_grad_());
  const Tensor y = operation(inputs);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(8);
  const Tensor upstream = torch::randn(y.sizes(), generator, torch::kFloat32).to(type);
  Tensors result = {y.detach()};
  for (const auto& gradient : torch::autograd::grad({y}, inputs, {upstream}))
    result.push_back(gradient);
  return result;
}

void check_near(const Tensors& ours, const Tensors& reference, double tolerance) {
  REQUIRE(ours.size() == reference.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double largest = reference[i].abs().max().item<double>();
    const double error = (ours[i].to(torch::kFloat64) - reference[i]).abs().max().item<double>();
    INFO("tensor " << i << ", largest value " << largest);
    CHECK(error <= tolerance * std::max(1.0, largest));
  }
}

void compare(const Operation& fused, const Operation& reference, const Tensors& values,
             double tolerance = 2e-6) {
  check_near(results(fused, values, torch::kFloat32), results(reference, values, torch::kFloat64),
             tolerance);
}

Tensor plain_attention(const Tensor& qkv, int64_t heads, const Tensor& mask) {
  const int64_t B = qkv.size(0), T = qkv.size(1), C = qkv.size(2) / 3;
  const auto parts = qkv.view({B, T, 3, heads, C / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
  const auto above = torch::ones({T, T}, torch::kBool).triu(1);
  const auto scores = parts[0].matmul(parts[1].transpose(-2, -1)) /
                      std::sqrt(static_cast<double>(C) / static_cast<double>(heads));
  const auto kept = scores.masked_fill(above, -INFINITY).softmax(-1) * mask;
  return kept.matmul(parts[2]).transpose(1, 2).reshape({B, T, C});
}

constexpr double kEpsilon = 1e-5;

/// Both results of add_rms_norm(), as one tensor.
Tensor fused_norm(const Tensor& residual, const std::optional<Tensor>& branch,
                  const Tensor& weight) {
  const auto normed = fused::add_rms_norm(residual, branch, {weight, {}, kEpsilon});
  return torch::cat({normed.sum, normed.y}, 0);
}

Tensor plain_norm(const Tensor& sum, const Tensor& weight) {
  const auto scale = (sum.square().mean(-1, /*keepdim=*/true) + kEpsilon).rsqrt();
  return torch::cat({sum, sum * scale * weight}, 0);
}

Tensor plain_rotation(const Tensor& x_BTHD, const Tensor& angles_BT1D) {
  const auto cos = angles_BT1D.cos(), sin = angles_BT1D.sin();
  const auto halves = x_BTHD.chunk(2, -1);
  return torch::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

/// Factors that dropout applies to rows of that length when it draws the next seed.
Tensor mask_of_next(const std::vector<int64_t>& shape, double p) {
  const Tensor mask = fused::dropout(torch::ones(shape), p);
  return mask.to(torch::kFloat64);
}

}  // namespace

TEST_CASE("a projection with GELU and its gradients are those of torch's") {
  for (const bool tanh : {false, true}) {
    for (const int64_t width : {64, 37}) {
      INFO("tanh " << tanh << ", width " << width);
      compare([&](const Tensors& t) { return fused::linear_gelu(t[0], t[1], t[2], tanh); },
              [&](const Tensors& t) {
                return at::gelu(torch::linear(t[0], t[1], t[2]), tanh ? "tanh" : "none");
              },
              random_tensors({{3, 67, 16}, {width, 16}, {width}}));
    }
  }
}

TEST_CASE("a projection with GELU is the same to the last bit where no gradients are kept") {
  for (const bool tanh : {false, true}) {
    const auto t = random_tensors({{3, 67, 16}, {37, 16}, {37}});
    const auto kept = fused::linear_gelu(t[0], t[1], t[2], tanh);
    const torch::NoGradGuard no_grad;
    CHECK(torch::equal(fused::linear_gelu(t[0], t[1], t[2], tanh), kept));
  }
}

TEST_CASE("GELU is right far from zero, and NaN stays NaN") {
  const auto x = torch::tensor({-1e30F, -40.0F, -9.0F, -3.0F, 0.0F, 3.0F, 9.0F, 40.0F, 1e30F});
  for (const bool tanh : {false, true}) {
    const auto column = x.reshape({-1, 1});
    const auto ours = fused::linear_gelu(column, torch::ones({1, 1}), torch::zeros({1}), tanh);
    CHECK(torch::allclose(ours, at::gelu(column, tanh ? "tanh" : "none"), 1e-6, 1e-6));
    CHECK(fused::linear_gelu(torch::full({1, 1}, NAN), torch::ones({1, 1}), torch::zeros({1}), tanh)
              .isnan()
              .all()
              .item<bool>());
  }
}

TEST_CASE("a projection added to a residual and its gradients are those of torch's") {
  for (const int64_t rows : {1, 130, 300}) {
    compare([](const Tensors& t) { return fused::linear_dropout_add(t[0], t[1], t[2], t[3], 0.0); },
            [](const Tensors& t) { return t[3] + torch::linear(t[0], t[1], t[2]); },
            random_tensors({{rows, 16}, {37, 16}, {37}, {rows, 37}}));
    compare([](const Tensors& t) { return fused::linear_dropout_add(t[0], t[1], t[2], {}, 0.0); },
            [](const Tensors& t) { return torch::linear(t[0], t[1], t[2]); },
            random_tensors({{rows, 16}, {37, 16}, {37}}));
  }
}

TEST_CASE("dropout after a projection uses one mask forward and backward") {
  const double p = 0.3;
  torch::manual_seed(5);
  const Tensor mask = mask_of_next({130, 37}, p);
  compare(
      [&](const Tensors& t) {
        torch::manual_seed(5);
        return fused::linear_dropout_add(t[0], t[1], t[2], t[3], p);
      },
      [&](const Tensors& t) { return t[3] + mask * torch::linear(t[0], t[1], t[2]); },
      random_tensors({{130, 16}, {37, 16}, {37}, {130, 37}}));
}

TEST_CASE("attention and its gradients are those of the plain formula, at every kind of length") {
  for (const int64_t length : {1, 3, 4, 16, 17, 31, 64, 130}) {
    for (const int64_t head_dim : {16, 48}) {
      INFO("length " << length << ", head " << head_dim);
      compare([](const Tensors& t) { return fused::causal_attention(t[0], 3, 0.0); },
              [](const Tensors& t) {
                return plain_attention(t[0], 3, torch::ones({1}, torch::kFloat64));
              },
              random_tensors({{2, length, 9 * head_dim}}));
    }
  }
}

TEST_CASE("attention drops weights by one mask forward and backward") {
  const double p = 0.25;
  const int64_t B = 2, heads = 3, T = 37;
  torch::manual_seed(5);
  const Tensor mask = mask_of_next({B, heads, T, T}, p);
  compare(
      [&](const Tensors& t) {
        torch::manual_seed(5);
        return fused::causal_attention(t[0], heads, p);
      },
      [&](const Tensors& t) { return plain_attention(t[0], heads, mask); },
      random_tensors({{B, T, 3 * heads * 16}}));
}

TEST_CASE("large scores do not overflow, and NaN reaches the output") {
  auto qkv = random_tensors({{1, 20, 48}}, 100.0).front();
  CHECK(fused::causal_attention(qkv, 1, 0.0).isfinite().all().item<bool>());
  qkv[0][5][20] = NAN;  // a key: rows from 5 on see it
  const auto y = fused::causal_attention(qkv, 1, 0.0);
  CHECK(y.slice(1, 0, 5).isfinite().all().item<bool>());
  CHECK(y.slice(1, 5).isnan().all().item<bool>());
}

TEST_CASE("every instruction set of this CPU computes the same up to rounding") {
  // The best one is checked above; masks are integers and must be equal.
  const auto x = torch::ones({5, 37});
  auto drop = [&](const cpu::Kernels& kernels) {
    auto y = torch::empty_like(x);
    kernels.bias_dropout_add(x.const_data_ptr<float>(), nullptr, nullptr,
                             y.mutable_data_ptr<float>(), {0.4, 99}, {0, 5, 37});
    return y;
  };
  for (const cpu::Kernels* kernels : cpu::all_kernels()) {
    INFO(kernels->instructions);
    CHECK(torch::equal(drop(*kernels), drop(cpu::kernels())));
    const auto qkv = random_tensors({{1, 37, 96}}).front();
    auto attend = [&](const cpu::Kernels& those) {
      const cpu::AttentionShape shape{37, 2, 16};
      auto y = torch::empty({1, 37, 32});
      auto p = torch::empty({2, 37, cpu::padded(37)});
      auto scratch = torch::empty({cpu::attention_scratch(shape)});
      those.attention(qkv.const_data_ptr<float>(), y.mutable_data_ptr<float>(),
                      p.mutable_data_ptr<float>(), scratch.mutable_data_ptr<float>(), {0.4, 99},
                      shape, 0, 2);
      return y;
    };
    CHECK(torch::allclose(attend(*kernels), attend(cpu::kernels()), 1e-5, 1e-6));
    auto of_llama = [&](const cpu::Kernels& those) {
      const auto t = random_tensors({{5, 37}, {5, 37}, {37}, {5, 32}, {5, 16}});
      auto out = torch::empty({4, 5, 37}), turned = torch::empty({5, 64}), scales = torch::empty(5);
      const auto at = [&](int64_t i) { return out[i].mutable_data_ptr<float>(); };
      const auto value = [&](std::size_t i) { return t[i].const_data_ptr<float>(); };
      const cpu::Rows rows{0, 5, 37};
      those.add_rms_norm(value(0), value(1), value(2), 1e-5F, at(0), at(1),
                         scales.mutable_data_ptr<float>(), rows);
      those.swiglu(value(0), value(1), at(2), rows);
      those.swiglu(at(0), at(1), at(3), rows);
      those.rotate_heads(value(3), value(4), value(4), value(0), value(1),
                         turned.mutable_data_ptr<float>(), {2, 1, 1, 16, 3}, rows);
      return torch::cat({out.flatten(), turned.flatten(), scales});
    };
    CHECK(torch::allclose(of_llama(*kernels), of_llama(cpu::kernels()), 1e-5, 1e-6));
  }
}

TEST_CASE("RMSNorm of a sum and its gradients are those of the plain formula") {
  for (const int64_t width : {16, 37, 64}) {
    for (const int64_t rows : {1, 130, 300}) {
      INFO("width " << width << ", rows " << rows);
      const auto values = random_tensors({{rows, width}, {rows, width}, {width}});
      compare([](const Tensors& t) { return fused_norm(t[0], t[1], t[2]); },
              [](const Tensors& t) { return plain_norm(t[0] + t[1], t[2]); }, values);
      compare([](const Tensors& t) { return fused_norm(t[0], {}, t[1]); },
              [](const Tensors& t) { return plain_norm(t[0], t[1]); }, {values[0], values[2]});
    }
  }
}

TEST_CASE("RMSNorm of which only one result is used has that one's gradients") {
  const auto values = random_tensors({{130, 37}, {130, 37}, {37}});
  const auto of_part = [&](int64_t part) {
    const auto only = [part](const Tensor& both) { return both.chunk(2, 0)[part]; };
    compare(
        [&](const Tensors& t) {
          const auto normed = fused::add_rms_norm(t[0], t[1], {t[2], {}, kEpsilon});
          return part == 0 ? normed.sum + 0 * t[2] : normed.y;
        },
        [&](const Tensors& t) { return only(plain_norm(t[0] + t[1], t[2])) + 0 * t[2]; }, values);
  };
  of_part(0);
  of_part(1);
}

TEST_CASE("SwiGLU and its gradients are those of torch's, far from zero as well") {
  for (const double spread : {1.0, 30.0}) {
    compare([](const Tensors& t) { return fused::swiglu(t[0], t[1]); },
            [](const Tensors& t) { return at::silu(t[0]) * t[1]; },
            random_tensors({{3, 67, 37}, {3, 67, 37}}, spread));
  }
  const auto far = torch::tensor({{-1e30F, -90.0F, 90.0F, 1e30F}});
  CHECK(torch::allclose(fused::swiglu(far, torch::ones_like(far)), at::silu(far), 1e-6, 1e-6));
}

TEST_CASE("heads turned by their positions and their gradients are those of the plain formula") {
  constexpr int64_t B = 2, T = 70, H = 6, K = 2;
  for (const int64_t head_dim : {2, 16, 24, 64}) {
    for (const int64_t repeat : {1, 3}) {
      for (const bool each_row : {false, true}) {
        INFO("head " << head_dim << ", repeat " << repeat << ", positions of each row "
                     << each_row);
        const auto angles = each_row ? torch::rand({B, 1, T, head_dim / 2}) * 100
                                     : torch::rand({T, head_dim / 2}) * 100;
        const auto wide = angles.to(torch::kFloat64).reshape({-1, T, 1, head_dim / 2});
        compare(
            [&](const Tensors& t) {
              return fused::rotated_heads({t[0], t[1], t[2], angles.cos(), angles.sin()}, repeat);
            },
            [&](const Tensors& t) {
              return torch::cat({plain_rotation(t[0], wide),
                                 plain_rotation(t[1], wide).repeat_interleave(repeat, 2),
                                 t[2].repeat_interleave(repeat, 2)},
                                2);
            },
            random_tensors({{B, T, H, head_dim}, {B, T, K, head_dim}, {B, T, K, head_dim}}), 1e-5);
      }
    }
  }
}

TEST_CASE("dropout keeps its share of elements, of rows and of columns, without a pattern") {
  constexpr double kShare = 0.1;
  constexpr int64_t kRows = 1000, kColumns = 1000;
  torch::manual_seed(3);
  const Tensor dropped =
      fused::dropout(torch::ones({kRows, kColumns}), kShare).eq(0).to(torch::kFloat64);
  const auto deviations = [](const Tensor& shares, int64_t count) {
    const double sigma = std::sqrt(kShare * (1 - kShare) / static_cast<double>(count));
    return ((shares - kShare).abs().max() / sigma).item<double>();
  };
  CHECK(deviations(dropped.mean(), kRows * kColumns) < 4);
  CHECK(deviations(dropped.mean(0), kRows) < 5.5);
  CHECK(deviations(dropped.mean(1), kColumns) < 5.5);
  // Two neighbours, side by side or one above the other, are dropped together by chance only.
  for (const int64_t dimension : {0, 1}) {
    for (const int64_t distance : {1, 2, 16, 128}) {
      INFO("dimension " << dimension << ", distance " << distance);
      const Tensor both = dropped.narrow(dimension, distance, 1000 - distance) *
                          dropped.narrow(dimension, 0, 1000 - distance);
      const double sigma = std::sqrt(0.01 * 0.99 / static_cast<double>(both.numel()));
      CHECK(std::abs(both.mean().item<double>() - 0.01) < 5 * sigma);
    }
  }
}

TEST_CASE("masks follow the generator, not the number of threads") {
  const int threads = at::get_num_threads();
  const auto drawn = [](uint64_t seed) {
    torch::manual_seed(seed);
    return fused::dropout(torch::ones({700, 64}), 0.5);
  };
  const Tensor first = drawn(1);
  at::set_num_threads(3);
  const Tensor with_three = drawn(1);
  at::set_num_threads(threads);
  CHECK(torch::equal(first, with_three));
  CHECK_FALSE(torch::equal(first, drawn(2)));
  CHECK_FALSE(torch::equal(first, fused::dropout(torch::ones({700, 64}), 0.5)));
}

TEST_CASE("frozen weights get no gradient, what lies before them does") {
  auto t = random_tensors({{5, 16}, {8, 16}, {8}});
  t[0].requires_grad_();
  t[2].requires_grad_();
  fused::linear_gelu(t[0], t[1], t[2], false).sum().backward();
  CHECK(t[0].grad().defined());
  CHECK_FALSE(t[1].grad().defined());
  CHECK(t[2].grad().defined());
}

TEST_CASE("a model computes the same loss and gradients with and without fused kernels") {
  for (const auto activation : {Activation::kGelu, Activation::kGeluTanh}) {
    Tensors results[2];
    for (const bool fused : {false, true}) {
      GptConfig config = test::tiny_config(2, 2, 32);
      config.embd_pdrop = config.resid_pdrop = config.attn_pdrop = 0.0;
      config.activation = activation;
      config.fused_cpu_kernels = fused;
      GPT model(config, 65, 48, 5);
      auto loss = model->loss(test::random_tokens(3, 48, 65, 1), test::random_tokens(3, 48, 65, 2));
      loss.backward();
      results[fused].push_back(loss.detach().to(torch::kFloat64));
      for (const auto& p : model->parameters())
        results[fused].push_back(p.grad().to(torch::kFloat64));
    }
    check_near(results[1], results[0], 1e-6);
  }
}

}  // namespace ddp::train
