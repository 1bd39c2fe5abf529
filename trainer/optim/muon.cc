#include "trainer/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "trainer/optim/trained_parameters.h"

namespace ddp::train {
namespace {

bool is_muon(const GroupOptions& options) { return options.optimizer == OptimizerName::kMuon; }

}  // namespace

torch::Tensor orthogonalised(const torch::Tensor& matrix) {
  constexpr double kA = 3.4445;  // the coefficients of the article
  constexpr double kB = -4.7750;
  constexpr double kC = 2.0315;
  constexpr double kSmallest = 1e-7;
  constexpr int kSteps = 5;
  const bool tall = matrix.size(0) > matrix.size(1);
  auto x = matrix.to(torch::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
  if (tall) x = x.t();
  x.div_(x.norm().clamp_min(kSmallest));
  for (int step = 0; step < kSteps; ++step) {
    const auto gram = x.mm(x.t());
    x = torch::addmm(x, torch::addmm(gram, gram, gram, kB, kC), x, kA, 1.0);
  }
  return tall ? x.t() : x;
}

Muon::Muon(TrainedParameters trained, const OptimizerConfig& config)
    : Optimizer(std::move(trained)), config_(config) {
  for (const auto& group : groups()) {
    if (!is_muon(group.options)) continue;
    for (const std::size_t i : group.members) {
      const Parameter& p = parameters()[i];
      if (p.tensor.numel() == 0) continue;  // this rank holds none of it
      matrices_.push_back({p, group.options, torch::zeros_like(p.tensor).detach()});
    }
  }
  auto rest = select_groups(parameters(), groups(),
                            [](const GroupOptions& options) { return !is_muon(options); });
  if (!rest.parameters.empty())
    rest_ = std::make_unique<Adam>(std::move(rest), config, Adam::Decay::kDecoupled);
}

// In the order of the parameters, as other optimizers have it.
std::vector<NamedTensor> Muon::state() const {
  std::map<std::string, std::vector<NamedTensor>> of_parameter;
  for (const auto& [parameter, options, buffer] : matrices_)
    of_parameter[parameter.name].push_back(
        {parameter.name + ".momentum_buffer", buffer, parameter.layout});
  for (auto& state : rest_ ? rest_->state() : std::vector<NamedTensor>{})
    of_parameter[state.name.substr(0, state.name.rfind('.'))].push_back(std::move(state));
  std::vector<NamedTensor> result;
  for (const Parameter& p : parameters()) {
    for (auto& state : of_parameter[p.name]) result.push_back(std::move(state));
    of_parameter.erase(p.name);
  }
  return result;
}

bool Muon::update(double learning_rate, const torch::Tensor& found_inf, const torch::Tensor&,
                  const CopyOf&) {
  const auto skip = found_inf.reshape({}) != 0;
  for (const auto& matrix : matrices_)
    update_matrix(matrix, learning_rate * matrix.options.lr_mult, skip);
  if (!rest_) return false;
  rest_->step_count().copy_(step_count() - 1);  // a snapshot holds one count for all
  rest_->step(learning_rate, found_inf);
  return false;
}

// The update is computed even for an infinite gradient and then discarded: no host sync.
void Muon::update_matrix(const Matrix& matrix, double learning_rate, const torch::Tensor& skip) {
  constexpr double kAdamWSize = 0.2;
  const auto& value = matrix.parameter.tensor;
  const auto& gradient = value.grad();
  const double momentum = momentum_of(config_);
  const auto buffer = matrix.momentum_buffer.lerp(gradient, 1.0 - momentum);
  const auto direction =  // Nesterov's
      orthogonalised(gradient.lerp(buffer, momentum));
  const double size =
      kAdamWSize * std::sqrt(static_cast<double>(std::max(value.size(0), value.size(1))));
  const double decay = learning_rate * matrix.options.weight_decay;
  const auto updated = (value * (1.0 - decay)).sub_(direction, learning_rate * size);
  matrix.momentum_buffer.copy_(torch::where(skip, matrix.momentum_buffer, buffer));
  value.copy_(torch::where(skip, value, updated));
}

}  // namespace ddp::train
