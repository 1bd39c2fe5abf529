#include "trainer/optim/fused_optimizers.h"

#include <cmath>
#include "tests/support/catch.h"
#include "trainer/config/config.h"
#include "trainer/optim/trained_parameters.h"

namespace ddp::train {
namespace {

TrainedParameters make(const std::vector<torch::Tensor>& parameters,
                       const std::vector<bool>& decay) {
  std::vector<Parameter> list;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    list.push_back({std::to_string(i), parameters[i],
                    decay[i] ? ParameterRole::kLinear : ParameterRole::kOther});
  }
  return trained_parameters({}, list);
}

torch::Tensor parameter(double value) { return torch::full({3}, value).requires_grad_(true); }

}  // namespace

TEST_CASE("AdamW follows the published update, with decay for one group only") {
  OptimizerConfig config;
  config.learning_rate = 0.01;
  auto decayed = parameter(1.0);
  auto plain = parameter(1.0);
  Adam optimizer(make({decayed, plain}, {true, false}), config, Adam::Decay::kDecoupled);
  double m = 0, v = 0, with_decay = 1.0, without = 1.0;
  for (int t = 1; t <= 5; ++t) {
    const double g = 0.5 / t;
    decayed.grad().fill_(g);
    plain.grad().fill_(g);
    optimizer.step(config.learning_rate, torch::zeros({}));
    m = config.betas[0] * m + (1 - config.betas[0]) * g;
    v = config.betas[1] * v + (1 - config.betas[1]) * g * g;
    const double update = (m / (1 - std::pow(config.betas[0], t))) /
                          (std::sqrt(v / (1 - std::pow(config.betas[1], t))) + config.eps);
    with_decay = with_decay * (1 - config.learning_rate * config.weight_decay) -
                 config.learning_rate * update;
    without -= config.learning_rate * update;
  }
  CHECK(decayed[0].item<double>() == Approx(with_decay).epsilon(1e-6));
  CHECK(plain[0].item<double>() == Approx(without).epsilon(1e-6));
  CHECK(optimizer.step_count().item<float>() == 5.0F);
}

TEST_CASE("a step with a found infinity changes nothing, its count included") {
  auto p = parameter(1.0);
  Adam optimizer(make({p}, {true}), {}, Adam::Decay::kDecoupled);
  p.grad().fill_(1.0);
  optimizer.step(0.1, torch::ones({1}));
  CHECK(torch::equal(p, torch::ones({3})));
  CHECK(optimizer.state()[0].tensor.eq(0).all().item<bool>());
  CHECK(optimizer.step_count().item<float>() == 0.0F);
}

TEST_CASE("zero_grad keeps the gradient's memory: it may be a view into a bucket") {
  auto p = parameter(1.0);
  Adam optimizer(make({p}, {true}), {}, Adam::Decay::kDecoupled);
  const void* before = p.grad().data_ptr();
  p.grad().fill_(2.0);
  optimizer.zero_grad();
  CHECK(p.grad().data_ptr() == before);
  CHECK(p.grad().eq(0).all().item<bool>());
  p.grad().fill_(2.0);
  optimizer.zero_grad(/*set_to_none=*/true);
  CHECK_FALSE(p.grad().defined());
  optimizer.complete_gradients();
  CHECK(p.grad().eq(torch::zeros({3})).all().item<bool>());
}

TEST_CASE("clipping scales to the global norm, and a maximum of 0 leaves all as it is") {
  CHECK_FALSE(clip_coefficient(torch::tensor(5.0F), 0.0).defined());
  CHECK(clip_coefficient(torch::tensor(5.0F), 1.0).item<float>() == Approx(0.2).epsilon(1e-5));
  CHECK(clip_coefficient(torch::tensor(1.0F), 10.0).item<float>() == 1.0F);
}

TEST_CASE("an update with a scale is one of gradients that were multiplied by it, bit for bit") {
  const auto name = GENERATE(OptimizerName::kAdamW, OptimizerName::kAdam, OptimizerName::kSgd,
                             OptimizerName::kMuon);
  OptimizerConfig config;
  config.name = name;
  const auto scale = torch::tensor(0.3F);
  std::vector<torch::Tensor> results;
  for (const bool before : {true, false}) {
    torch::manual_seed(5);
    auto weight = torch::randn({4, 6}).set_requires_grad(true);
    const auto optimizer = make_optimizer(make({weight}, {true}), config);
    for (int step = 0; step < 2; ++step) {
      weight.mutable_grad().copy_(torch::randn({4, 6}));
      if (before) weight.mutable_grad().mul_(scale);
      optimizer->step(0.1, torch::zeros({}), before ? torch::Tensor() : scale);
    }
    results.push_back(weight.detach());
  }
  CHECK(torch::equal(results[0], results[1]));
}

}  // namespace ddp::train
