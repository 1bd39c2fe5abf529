#include "trainer/run/run_end.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

namespace ddp::train {
namespace {

bool steps_are_done(const TrainerConfig& config, int64_t step) {
  return config.max_steps && step >= *config.max_steps;
}

/// Whether neither a shell nor an override needs quotes around it.
bool is_plain(std::string_view word) {
  return word.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
             "0123456789_-+:./@%") == std::string_view::npos;
}

/// snapshot.pt -> trainer_config.snapshot_path=snapshot-new.pt
std::string another_snapshot(const std::string& path) {
  const auto name = path.rfind('/') + 1;  // npos + 1 is 0
  const auto dot = path.rfind('.');
  const auto end = dot == std::string::npos || dot <= name ? path.size() : dot;
  return shell_quoted("trainer_config.snapshot_path",
                      path.substr(0, end) + "-new" + path.substr(end));
}

}  // namespace

bool run_is_complete(const TrainerConfig& config, int64_t step, int64_t epoch) {
  return epoch >= config.max_epochs || steps_are_done(config, step);
}

int64_t steps_of_run(const TrainerConfig& config, const DistributedSampler& sampler, int64_t step,
                     const DataCursor& cursor) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const int64_t per_epoch = sampler.steps_per_epoch();
  int64_t all = step;
  if (cursor.epoch < config.max_epochs) {
    const int64_t batch = sampler.global_batch();
    all += (per_epoch * batch + sampler.left_out() - cursor.position) / batch;
    const int64_t epochs = config.max_epochs - cursor.epoch - 1;
    all = epochs > (kMost - all) / per_epoch ? kMost : all + epochs * per_epoch;
  }
  return std::min(all, config.max_steps.value_or(kMost));
}

std::string nothing_to_train_text(const TrainerConfig& config, int64_t step, int64_t epoch) {
  std::vector<std::string> reached, further;
  if (epoch >= config.max_epochs) {
    reached.push_back(fmt::format("max_epochs={}", config.max_epochs));
    further.push_back(fmt::format("trainer_config.max_epochs={}", epoch + config.max_epochs));
  }
  if (steps_are_done(config, step)) {
    reached.push_back(fmt::format("max_steps={}", *config.max_steps));
    further.push_back(fmt::format("trainer_config.max_steps={}", step + *config.max_steps));
  }
  return fmt::format(
      "Nothing to train: {} is at step {}, epoch {}, the end set by trainer_config.{}. To "
      "continue, "
      "add {} to the command; to start over, add {}",
      config.snapshot_path, step, epoch, fmt::join(reached, " and "), fmt::join(further, " "),
      another_snapshot(config.snapshot_path));
}

std::string nothing_after_early_stop_text(const TrainerConfig& config, int64_t step) {
  const int64_t patience = config.early_stopping_patience.value_or(0);
  return fmt::format(
      "Nothing to train: {} is at step {}, where early stopping ended the run: {} evaluations "
      "without progress. To continue, add trainer_config.early_stopping_patience={} to the "
      "command; to start over, add {}",
      config.snapshot_path, step, patience, 2 * patience, another_snapshot(config.snapshot_path));
}

std::string shell_quoted(const std::string& word) {
  if (is_plain(word)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string shell_quoted(const std::string& key, const std::string& value) {
  return is_plain(value) ? key + "=" + value : shell_quoted(fmt::format("{}=\"{}\"", key, value));
}

}  // namespace ddp::train
