#include "trainer/optim/amp.h"

#include <ATen/autocast_mode.h>

namespace ddp::train {
namespace {

constexpr double kGrowthFactor = 2.0;
constexpr double kBackoffFactor = 0.5;
constexpr int64_t kGrowthInterval = 2000;

}  // namespace

Autocast::Autocast(torch::DeviceType device, std::optional<torch::ScalarType> dtype)
    : device_(device), enabled_(dtype.has_value()) {
  if (!enabled_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  old_dtype_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *dtype);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!enabled_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_, old_dtype_);
  at::autocast::set_autocast_enabled(device_, was_enabled_);
}

std::optional<torch::ScalarType> autocast_dtype(const TrainerConfig& config) {
  if (!config.use_amp) return std::nullopt;
  return config.amp_dtype == AmpDtype::kBFloat16 ? torch::kBFloat16 : torch::kFloat16;
}

GradScaler::GradScaler(bool enabled, torch::Device device) : enabled_(enabled) {
  scale_ = torch::full({}, State{}.scale, torch::TensorOptions(torch::kFloat32).device(device));
  growth_tracker_ = torch::zeros({}, torch::TensorOptions(torch::kInt32).device(device));
}

torch::Tensor GradScaler::scale(const torch::Tensor& loss) const {
  return enabled_ ? loss * scale_ : loss;
}

std::optional<torch::Tensor> GradScaler::unscale(const std::vector<torch::Tensor>& gradients) {
  if (!enabled_) return std::nullopt;
  const torch::NoGradGuard no_grad;
  auto found_inf = torch::zeros({}, scale_.options());
  const auto inverse = scale_.to(torch::kFloat64).reciprocal().to(torch::kFloat32);
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inverse);
  return found_inf;
}

void GradScaler::update(const std::optional<torch::Tensor>& found_inf) {
  if (!enabled_ || !found_inf) return;
  const torch::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, growth_tracker_, *found_inf, kGrowthFactor, kBackoffFactor,
                         kGrowthInterval);
}

torch::Tensor GradScaler::packed_state() const {
  return torch::stack({scale_.to(torch::kFloat64), growth_tracker_.to(torch::kFloat64)});
}

GradScaler::State GradScaler::unpack(const torch::Tensor& packed) {
  return {packed[0].item<float>(), static_cast<int32_t>(packed[1].item<double>())};
}

void GradScaler::load_state(const State& state) {
  const torch::NoGradGuard no_grad;
  scale_.fill_(state.scale);
  growth_tracker_.fill_(state.growth_tracker);
}

}  // namespace ddp::train
