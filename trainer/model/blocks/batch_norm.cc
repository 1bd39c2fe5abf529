#include "trainer/model/blocks/batch_norm.h"

#include <algorithm>
#include <vector>

namespace ddp::train {
namespace {

constexpr double kEpsilon = 1e-5;  // both as in torch
constexpr double kMomentum = 0.1;
const std::vector<int64_t> kAllButChannels = {0, 2, 3};

torch::Tensor of_channels(const torch::Tensor& value_C) { return value_C.view({1, -1, 1, 1}); }

/// The forward pass's sum, kept for the backward pass.
struct HeldSum : torch::CustomClassHolder {
  explicit HeldSum(SumOverRanks given) : sum(std::move(given)) {}
  SumOverRanks sum;
};

/// (x - mean) / sqrt(var + eps) with mean and variance over the micro-batches of all ranks.
class NormaliseTogether : public torch::autograd::Function<NormaliseTogether> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& x_BCHW, const torch::Tensor& mean_C,
                               const torch::Tensor& var_C, const SumOverRanks& sum, int64_t ranks) {
    const auto factor_C = torch::rsqrt(var_C + kEpsilon);
    const auto y_BCHW = (x_BCHW - of_channels(mean_C)) * of_channels(factor_C);
    context->save_for_backward({y_BCHW, factor_C});
    context->saved_data["sum"] = c10::IValue::make_capsule(c10::make_intrusive<HeldSum>(sum));
    context->saved_data["ranks"] = ranks;
    return y_BCHW;
  }

  // dx = factor (dy - mean(dy) - y mean(dy y)), the means over all ranks.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto& y_BCHW = saved[0];
    const auto& dy_BCHW = gradients[0];
    const auto held = context->saved_data["sum"].toCapsule();
    auto means_2C =
        torch::stack({dy_BCHW.sum(kAllButChannels), (dy_BCHW * y_BCHW).sum(kAllButChannels)});
    static_cast<const HeldSum&>(*held).sum(means_2C);
    const int64_t count = y_BCHW.numel() / y_BCHW.size(1) * context->saved_data["ranks"].toInt();
    means_2C /= static_cast<double>(count);
    const auto dx_BCHW = (dy_BCHW - of_channels(means_2C[0]) - y_BCHW * of_channels(means_2C[1])) *
                         of_channels(saved[1]);
    return {dx_BCHW, {}, {}, {}, {}};
  }
};

}  // namespace

BatchNormImpl::BatchNormImpl(int64_t channels)
    : weight(register_parameter("weight", torch::ones({channels}))),
      bias(register_parameter("bias", torch::zeros({channels}))),
      running_mean(register_buffer("running_mean", torch::zeros({channels}))),
      running_var(register_buffer("running_var", torch::ones({channels}))) {}

torch::Tensor BatchNormImpl::forward(const torch::Tensor& x_BCHW) {
  if (!is_training())
    return torch::batch_norm(x_BCHW, weight, bias, running_mean, running_var, /*training=*/false,
                             kMomentum, kEpsilon, /*cudnn_enabled=*/true);
  return sum_ ? normalise_together(x_BCHW) : normalise_locally(x_BCHW);
}

torch::Tensor BatchNormImpl::normalise_locally(const torch::Tensor& x_BCHW) {
  {
    const torch::NoGradGuard no_grad;
    const auto x = x_BCHW.to(torch::kFloat32);
    const auto [var_C, mean_C] = torch::var_mean(x, kAllButChannels, /*unbiased=*/false);
    const int64_t count = x.numel() / x.size(1);
    remember(mean_C, var_C, static_cast<double>(count));
  }
  return torch::batch_norm(x_BCHW, weight, bias, /*running_mean=*/{}, /*running_var=*/{},
                           /*training=*/true, kMomentum, kEpsilon, /*cudnn_enabled=*/true);
}

torch::Tensor BatchNormImpl::normalise_together(const torch::Tensor& x_BCHW) {
  const auto x = x_BCHW.to(torch::kFloat32);
  const int64_t elements = x.numel() / x.size(1) * ranks_;
  const auto count = static_cast<double>(elements);
  torch::Tensor mean_C;
  torch::Tensor var_C;
  {
    const torch::NoGradGuard no_grad;
    mean_C = x.sum(kAllButChannels);
    sum_(mean_C);
    mean_C /= count;
    var_C =
        (x - of_channels(mean_C)).square().sum(kAllButChannels);  // exact, unlike E[x^2] - E[x]^2
    sum_(var_C);
    var_C /= count;
    remember(mean_C, var_C, count);
  }
  const auto y = NormaliseTogether::apply(x, mean_C, var_C, sum_, ranks_);
  return (y * of_channels(weight) + of_channels(bias)).to(x_BCHW.scalar_type());
}

void BatchNormImpl::remember(const torch::Tensor& mean_C, const torch::Tensor& var_C,
                             double count) {
  const double unbiased = count / std::max(1.0, count - 1.0);
  const auto one = torch::cat({mean_C, var_C * unbiased, torch::ones_like(mean_C.slice(0, 0, 1))});
  seen_ = seen_.defined() ? seen_ + one : one;
}

void BatchNormImpl::synchronise(SumOverRanks sum, int64_t ranks) {
  sum_ = std::move(sum);
  ranks_ = ranks;
}

void BatchNormImpl::end_step(const SumOverRanks& sum, const torch::Tensor& discard) {
  if (!seen_.defined()) return;
  const torch::NoGradGuard no_grad;
  auto seen = std::exchange(seen_, torch::Tensor());
  sum(seen);
  const int64_t channels = running_mean.size(0);
  const auto means = seen.slice(0, 0, 2 * channels) / seen.slice(0, 2 * channels);
  const auto move = [&](torch::Tensor& running, const torch::Tensor& now) {
    const auto moved = running * (1.0 - kMomentum) + now * kMomentum;
    running.copy_(torch::where(discard != 0, running, moved));
  };
  move(running_mean, means.slice(0, 0, channels));
  move(running_var, means.slice(0, channels));
}

}  // namespace ddp::train
