#include "trainer/run/step_guard.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"

namespace ddp::train {
namespace {

constexpr std::size_t kHistory = 64;
constexpr std::size_t kEnough = 16;  // fewer do not show what is usual

double median(const std::deque<double>& values) {
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

bool is_spike(double value, const std::deque<double>& history, double factor) {
  return history.size() >= kEnough && value > factor * median(history);
}

void append(std::deque<double>& history, double value) {
  history.push_back(value);
  if (history.size() > kHistory) history.pop_front();
}

}  // namespace

StepVerdict StepGuard::judge(double loss, double grad_norm) {
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) return StepVerdict::kNotFinite;
  if (!watches_spikes()) return StepVerdict::kGood;
  if (is_spike(loss, losses_, spike_factor_) || is_spike(grad_norm, norms_, spike_factor_))
    return StepVerdict::kSpike;
  append(losses_, loss);
  append(norms_, grad_norm);
  return StepVerdict::kGood;
}

std::string StepGuard::state() const {
  return nlohmann::json{
      {"losses", losses_}, {"norms", norms_}, {"left_out", left_out_}, {"bad", bad_}}
      .dump();
}

void StepGuard::load_state(const std::string& json) {
  StepGuard loaded(spike_factor_);
  try {
    const auto state = nlohmann::json::parse(json.empty() ? "{}" : json);
    loaded.losses_ = state.value("losses", loaded.losses_);
    loaded.norms_ = state.value("norms", loaded.norms_);
    loaded.left_out_ = state.value("left_out", loaded.left_out_);
    loaded.bad_ = state.value("bad", loaded.bad_);
  } catch (const nlohmann::json::exception& error) {
    throw RunError(std::string("snapshot: step_guard is damaged: ") +
                   plain_json_error(error.what()));
  }
  *this = std::move(loaded);
}

int64_t StepGuard::bad_in_a_row(int64_t step) const {
  int64_t count = 0;
  while (bad_.contains(step - count)) ++count;
  return count;
}

void StepGuard::remember(const StepGuard& other) {
  left_out_.insert(other.left_out_.begin(), other.left_out_.end());
  bad_.insert(other.bad_.begin(), other.bad_.end());
}

}  // namespace ddp::train
