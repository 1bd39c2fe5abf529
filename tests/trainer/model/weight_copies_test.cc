#include "trainer/model/ops/weight_copies.h"

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

torch::Tensor weight() { return torch::ones({2, 3}).set_requires_grad(true); }

/// The sum of the copy, with a row of padding, within a step.
float sum_in_step(WeightCopies& copies, const torch::Tensor& of) {
  const WeightCopies::Step step(copies, /*on_their_way=*/false);
  return bfloat16_copy(of, 1).sum().item<float>();
}

/// What an update does that writes the weight, and `copied` to its copy.
void update(WeightCopies& copies, const torch::Tensor& of, double value, double copied) {
  const torch::NoGradGuard no_grad;
  of.fill_(value);
  copies.of(of).fill_(copied);
  copies.written({of});
}

}  // namespace

TEST_CASE("weights' copies are made anew for each step unless an update wrote them") {
  WeightCopies copies;
  const auto trained = weight();
  CHECK_FALSE(copies.of(trained).defined());
  CHECK(sum_in_step(copies, trained) == 6.0F);
  {
    const torch::NoGradGuard no_grad;
    trained.fill_(2.0);
  }
  CHECK(sum_in_step(copies, trained) == 12.0F);

  // Other values than the weight's show that the copy was taken as it is, once.
  update(copies, trained, 3.0, 4.0);
  CHECK(sum_in_step(copies, trained) == 24.0F);
  CHECK(sum_in_step(copies, trained) == 18.0F);
}

TEST_CASE("copies of weights that are still on their way are made when a product asks for them") {
  WeightCopies copies;
  const auto trained = weight();
  sum_in_step(copies, trained);
  const torch::NoGradGuard no_grad;
  const WeightCopies::Step step(copies, /*on_their_way=*/true);
  trained.fill_(2.0);
  CHECK(bfloat16_copy(trained, 1).sum().item<float>() == 12.0F);
  trained.fill_(3.0);
  CHECK(bfloat16_copy(trained, 1).sum().item<float>() == 12.0F);
}

TEST_CASE("a weight that changes after its update gets another copy") {
  WeightCopies copies;
  const auto trained = weight();
  sum_in_step(copies, trained);
  const torch::NoGradGuard no_grad;

  update(copies, trained, 3.0, 4.0);
  trained.mul_(2.0);
  CHECK(sum_in_step(copies, trained) == 36.0F);

  update(copies, trained, 3.0, 4.0);
  trained.set_data(torch::ones({2, 3}));  // as averaged weights do
  CHECK(sum_in_step(copies, trained) == 6.0F);

  update(copies, trained, 3.0, 4.0);
  copies.forget();
  CHECK(sum_in_step(copies, trained) == 18.0F);
}

}  // namespace ddp::train
