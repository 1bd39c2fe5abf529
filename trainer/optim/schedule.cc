#include "trainer/optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// Where `step` is between two others, 0 to 1.
double progress_between(int64_t first, int64_t last, int64_t step) {
  if (last <= first) return step < first ? 0.0 : 1.0;
  return std::clamp(static_cast<double>(step - first) / static_cast<double>(last - first), 0.0,
                    1.0);
}

/// From 1 to 0 along half a cosine wave.
double half_wave(double progress) { return 0.5 * (1.0 + std::cos(std::numbers::pi * progress)); }

/// With the steps that warmup_ratio makes of the run, rounded up as transformers does.
OptimizerConfig with_warmup_steps(OptimizerConfig config, int64_t total_steps) {
  if (config.warmup_ratio > 0.0) {
    config.warmup_steps =
        static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * config.warmup_ratio));
  }
  return config;
}

/// "warmup_steps=50", or what is given instead.
std::string warmup_text(const OptimizerConfig& config) {
  if (config.warmup_ratio > 0.0)
    return fmt::format("warmup_ratio={} ({} steps)", config.warmup_ratio, config.warmup_steps);
  return fmt::format("warmup_steps={}", config.warmup_steps);
}

bool decays(LrSchedule kind) { return kind != LrSchedule::kConstant; }

}  // namespace

Schedule::Schedule(const OptimizerConfig& config, int64_t total_steps)
    : config_(with_warmup_steps(config, total_steps)),
      end_(config.lr_schedule == LrSchedule::kWsd ? total_steps
                                                  : config.decay_steps.value_or(total_steps)) {
  const int64_t decay = config.decay_steps.value_or(0);
  const bool ends_at_step =
      decays(config.lr_schedule) && config.lr_schedule != LrSchedule::kWsd && decay > 0;
  if (ends_at_step && decay <= config_.warmup_steps) {
    throw UserError(
        fmt::format("optimizer_config.decay_steps: {} is not after {}; reduce the warmup, or decay "
                    "until a later step",
                    decay, warmup_text(config_)));
  }
}

std::string Schedule::cut_text(int64_t total_steps) const {
  const bool wsd = config_.lr_schedule == LrSchedule::kWsd;
  const int64_t needed = config_.warmup_steps + (wsd ? config_.decay_steps.value_or(0) : 0);
  if (needed == 0 || needed < total_steps || (needed == total_steps && wsd)) return "";
  return fmt::format(
      "optimizer_config.{}{}: the schedule does not fit into a run of {} optimizer "
      "step{}, which cuts it short; train for longer, or reduce the warmup",
      warmup_text(config_),
      wsd && config_.decay_steps ? fmt::format(", decay_steps={}", *config_.decay_steps) : "",
      total_steps, total_steps == 1 ? "" : "s");
}

double Schedule::learning_rate(int64_t step) const {
  const double peak = config_.learning_rate;
  const double low = config_.min_lr;
  const int64_t warmup = config_.warmup_steps;
  if (config_.lr_schedule == LrSchedule::kOneCycle) return one_cycle(step);
  if (step < warmup) return peak * progress_between(0, warmup, step);
  const double progress = progress_between(warmup, end_, step);
  switch (config_.lr_schedule) {
    case LrSchedule::kConstant:
      return peak;
    case LrSchedule::kLinear:
      return low + (peak - low) * (1.0 - progress);
    case LrSchedule::kPolynomial:
      return low + (peak - low) * std::pow(1.0 - progress, config_.lr_power);
    case LrSchedule::kCosine:
      return low + (peak - low) * half_wave(progress);
    case LrSchedule::kWsd:
      return warmup_stable_decay(step);
    case LrSchedule::kOneCycle:
      break;
  }
  return one_cycle(step);
}

// Without decay_steps the last tenth of the run decays, or what the warm-up leaves of it.
double Schedule::warmup_stable_decay(int64_t step) const {
  constexpr int64_t kShare = 10;
  const int64_t room = std::max<int64_t>(0, end_ - config_.warmup_steps);
  const int64_t decay = std::min(config_.decay_steps.value_or(end_ / kShare), room);
  const double progress = progress_between(end_ - decay, end_, step);
  return config_.min_lr + (config_.learning_rate - config_.min_lr) * (1.0 - progress);
}

// L. Smith, N. Topin: "Super-convergence", 2018; with the factors that torch's OneCycleLR has
// unless told otherwise. Without warmup_steps the first 30 % of the run go up.
double Schedule::one_cycle(int64_t step) const {
  constexpr double kUp = 0.3;
  constexpr double kFirst = 25.0;
  constexpr double kLast = 1e4;
  const double peak = config_.learning_rate;
  const double first = peak / kFirst;
  const double last = config_.min_lr > 0.0 ? config_.min_lr : first / kLast;
  const double total = static_cast<double>(end_);
  const double up =
      (config_.warmup_steps > 0 ? static_cast<double>(config_.warmup_steps) : kUp * total) - 1.0;
  const double at = std::min(static_cast<double>(step), total - 1.0);
  if (up == 0.0 && at == 0.0) return peak;
  if (at <= up && up > 0.0) return first + (peak - first) * (1.0 - half_wave(at / up));
  return last + (peak - last) * half_wave((at - up) / (total - 1.0 - up));
}

}  // namespace ddp::train
