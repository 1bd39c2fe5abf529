#include "trainer/optim/amp.h"

#include <ATen/autocast_mode.h>

#include <limits>
#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"
#include "trainer/optim/fused_optimizers.h"
#include "trainer/optim/trained_parameters.h"

namespace ddp::train {
namespace {

GradScaler::State state_of(const GradScaler& scaler) {
  return GradScaler::unpack(scaler.packed_state());
}

}  // namespace

TEST_CASE("the scaler halves on overflow, counts good steps and doubles after 2000 of them") {
  GradScaler scaler(true, torch::kCPU);
  CHECK(state_of(scaler) == GradScaler::State{65536.0F, 0});
  const std::vector<torch::Tensor> bad = {
      torch::tensor({1.0F, std::numeric_limits<float>::infinity()})};
  const auto overflow = scaler.unscale(bad);
  REQUIRE(overflow.has_value());
  CHECK(overflow->item<float>() == 1.0F);
  scaler.update(overflow);
  CHECK(state_of(scaler) == GradScaler::State{32768.0F, 0});
  for (int i = 0; i < 2000; ++i) scaler.update(torch::zeros({1}));
  CHECK(state_of(scaler) == GradScaler::State{65536.0F, 0});
  scaler.update(torch::zeros({1}));
  CHECK(state_of(scaler) == GradScaler::State{65536.0F, 1});
}

TEST_CASE("unscale divides by the scale exactly and finds NaN") {
  GradScaler scaler(true, torch::kCPU);
  const std::vector<torch::Tensor> gradients = {torch::full({2}, 65536.0F * 3)};
  CHECK(scaler.unscale(gradients)->item<float>() == 0.0F);
  CHECK(gradients[0][0].item<float>() == 3.0F);
  const std::vector<torch::Tensor> nan = {torch::tensor({std::numeric_limits<float>::quiet_NaN()})};
  CHECK(scaler.unscale(nan)->item<float>() == 1.0F);
}

TEST_CASE("an overflow skips the update and the next good step is taken") {
  auto p = torch::ones({2}).requires_grad_(true);
  Adam optimizer(trained_parameters({}, {{"p", p, ParameterRole::kOther}}), {},
                 Adam::Decay::kDecoupled);
  GradScaler scaler(true, torch::kCPU);
  for (const float gradient : {std::numeric_limits<float>::infinity(), 65536.0F}) {
    p.grad().fill_(gradient);
    const auto found_inf = scaler.unscale(optimizer.gradients());
    optimizer.step(3e-4, *found_inf);
    scaler.update(found_inf);
  }
  CHECK(optimizer.step_count().item<float>() == 1.0F);
  CHECK(p[0].item<float>() == Approx(1.0 - 3e-4).epsilon(1e-6));
  CHECK(state_of(scaler) == GradScaler::State{32768.0F, 1});
}

TEST_CASE("a disabled scaler changes nothing") {
  GradScaler scaler(false, torch::kCPU);
  const auto loss = torch::tensor(2.0F);
  CHECK(scaler.scale(loss).item<float>() == 2.0F);
  CHECK_FALSE(scaler.unscale({torch::ones({1})}).has_value());
}

TEST_CASE("the scaler's state survives a save and a load") {
  GradScaler a(true, torch::kCPU);
  a.load_state({256.0F, 17});
  CHECK(state_of(a) == GradScaler::State{256.0F, 17});
}

TEST_CASE("autocast runs the model in the asked dtype and leaves nothing behind") {
  for (const auto dtype : {torch::kBFloat16, torch::kFloat16}) {
    GPT model(test::tiny_config(), 65, 16, 5);
    const auto tokens = test::random_tokens(1, 16, 65, 1);
    {
      const Autocast autocast(torch::kCPU, dtype);
      CHECK(model->forward(tokens).scalar_type() == dtype);
      const auto loss = model->loss(tokens, tokens);
      CHECK(loss.scalar_type() == torch::kFloat32);
      loss.backward();
    }
    CHECK_FALSE(at::autocast::is_autocast_enabled(torch::kCPU));
    CHECK(model->parameters()[0].grad().scalar_type() == torch::kFloat32);
    CHECK(model->forward(tokens).scalar_type() == torch::kFloat32);
  }
}

TEST_CASE("float32 needs no autocast, AMP takes float16 unless bfloat16 is asked for") {
  TrainerConfig config;
  CHECK_FALSE(autocast_dtype(config).has_value());
  config.use_amp = true;
  CHECK(autocast_dtype(config) == torch::kFloat16);
  config.amp_dtype = AmpDtype::kBFloat16;
  CHECK(autocast_dtype(config) == torch::kBFloat16);
}

}  // namespace ddp::train
