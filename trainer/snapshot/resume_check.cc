#include "trainer/snapshot/resume_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "trainer/config/config.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/lora.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"
#include "trainer/task/evaluator.h"

namespace ddp::train {
namespace {

using Json = nlohmann::json;

// Sections and keys that change nothing in what is learned.
const std::set<std::string> kSilentSections = {"hydra", "distributed_config", "logging_config",
                                               "metrics_config", "profile"};
const std::set<std::string> kSilentKeys = {"data_config.path",
                                           "gpt_config.model_type",
                                           "trainer_config.snapshot_path",
                                           "trainer_config.max_steps",
                                           "trainer_config.max_epochs",
                                           "trainer_config.save_every",
                                           "trainer_config.device",
                                           "trainer_config.amp_on_cpu",
                                           "trainer_config.save_every_steps",
                                           "trainer_config.log_every_steps",
                                           "trainer_config.eval_every_steps",
                                           "trainer_config.eval_iters",
                                           "trainer_config.early_stopping_patience",
                                           "trainer_config.early_stopping_min_delta",
                                           "trainer_config.metric_for_best_model",
                                           "trainer_config.load_best_model_at_end",
                                           "trainer_config.sample_every_steps",
                                           "trainer_config.sample_prompt",
                                           "trainer_config.sample_tokens",
                                           "trainer_config.data_loader_workers",
                                           "trainer_config.snapshot_every",
                                           "trainer_config.snapshot_overhead",
                                           "trainer_config.snapshot_min_interval_s",
                                           "trainer_config.snapshot_disk_share",
                                           "trainer_config.snapshot_gb_per_hour",
                                           "trainer_config.snapshot_if_busy",
                                           "trainer_config.snapshot_cache",
                                           "trainer_config.save_total_limit",
                                           "trainer_config.ram_snapshots",
                                           "trainer_config.check_replicas_every_steps",
                                           "trainer_config.fault_plan"};

struct Change {
  std::string key;
  std::string before;
  std::string now;
};

/// A key that the snapshot's version did not have counts as its default.
std::vector<Change> changes(const Config& before_config, const Config& now_config) {
  const Json before = Json::parse(config_to_json(before_config));
  const Json now = Json::parse(config_to_json(now_config));
  std::vector<Change> result;
  for (const auto& [section, keys] : now.items()) {
    if (!keys.is_object() || kSilentSections.count(section) != 0) continue;
    for (const auto& [key, value] : keys.items()) {
      const Json old = before.value(section, Json::object()).value(key, Json());
      if (old != value) result.push_back({section + "." + key, old.dump(), value.dump()});
    }
  }
  return result;
}

/// The pretrained model that the snapshot's run names and this one does not; "": none.
std::string left_out_model(const Config& before, const Config& config) {
  const bool is_known =
      !trains_causal_lm(before.task) || find_causal_architecture(before.model) != nullptr;
  return is_known && model_below(config).path.empty() ? model_below(before).path : "";
}

/// What to do about a changed key that the snapshot fixes.
std::string way_out(const std::string& key, const Config& before, const Config& config) {
  const std::string from_scratch =
      "set trainer_config.snapshot_path to a new file to start from scratch";
  const bool is_of_optimizer = key.starts_with("optimizer_config.");
  const std::string model = left_out_model(before, config);
  if (!is_of_optimizer && !model.empty())
    return fmt::format("add init_from={} again, or {}", model, from_scratch);
  const bool takes_weights = config.task != TaskKind::kImageClassification &&
                             config.task != TaskKind::kPreference && !config.adapted();
  if (!is_of_optimizer || !takes_weights) return from_scratch;
  return fmt::format("{}, or from its weights with init_from={} as well", from_scratch,
                     config.trainer.snapshot_path);
}

void check_model(const Config& before, const Config& config) {
  if (!trains_causal_lm(config.task) || before.model == config.model) return;
  throw UserError(fmt::format(
      "{} belongs to another model: model is {} there, {} in this configuration; {}",
      config.trainer.snapshot_path, before.model, config.model, way_out("model", before, config)));
}

/// The end of the line about a changed key; nullopt: no line, it changes nothing in what is
/// learned.
std::optional<std::string> effect_of(const std::string& key, const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  const bool is_length = key == "trainer_config.max_steps" || key == "trainer_config.max_epochs";
  const bool spans_run = optimizer.lr_schedule == LrSchedule::kWsd || !optimizer.decay_steps;
  if (is_length && spans_run && optimizer.lr_schedule != LrSchedule::kConstant)
    return fmt::format("; lr_schedule={} follows the length of the run",
                       name_of(optimizer.lr_schedule));
  if (kSilentKeys.contains(key)) return std::nullopt;
  // The model below adapters is read again.
  const bool of_base = config.adapted() && key == model_below(config).key;
  if (key.ends_with(".init_from") && !of_base)
    return "; without effect, as the weights are those of the snapshot; set "
           "trainer_config.snapshot_path to a new file to start from scratch";
  return "";
}

/// With evaluation data of its own, all of the text is trained on.
double trained_share(const Config& config) {
  return config.data.eval_path.empty() ? config.data.train_split : 1.0;
}

bool has_same_order(const SnapshotMeta& meta, const Config& before, const Config& config,
                    const Task& task) {
  static const std::set<std::string> kOrderKeys = {"data_config.truncate", "data_config.stride",
                                                   "data_config.block_size", "trainer_config.seed"};
  return meta.data_sha256 == task.training().fingerprint() &&
         trained_share(before) == trained_share(config) &&
         std::ranges::none_of(changes(before, config),
                              [](const Change& change) { return kOrderKeys.contains(change.key); });
}

}  // namespace

std::vector<std::string> check_resume(const SnapshotMeta& meta, const Config& config,
                                      const Task& task) {
  const Config before = config_from_json(meta.config_json);
  check_model(before, config);
  const std::vector<Change> changed = changes(before, config);
  std::vector<std::string> lines;
  std::vector<std::string> fixed = task.shape_keys();
  fixed.emplace_back("optimizer_config.name");
  fixed.emplace_back("optimizer_config.state_bits");
  // In the order of the keys: n_embd before the head_dim that follows from it.
  for (const auto& key : fixed) {
    const auto change = std::ranges::find(changed, key, &Change::key);
    if (change == changed.end()) continue;
    throw UserError(fmt::format(
        "{} belongs to another model or optimizer: {} is {} there, {} in this configuration; {}",
        config.trainer.snapshot_path, key, shown(change->before), shown(change->now),
        way_out(key, before, config)));
  }
  for (const auto& change : changed) {
    if (const auto effect = effect_of(change.key, config)) {
      lines.push_back(fmt::format("Changed since the snapshot: {} {} -> {}{}", change.key,
                                  shown(change.before), shown(change.now), *effect));
    }
  }
  task.check_resume(meta.task, config.trainer.snapshot_path);
  if (!has_same_order(meta, before, config, task)) {
    lines.push_back(
        fmt::format("The training data differs from the snapshot's: epoch {} starts over",
                    meta.cursor.epoch + 1));
  }
  if (!keeps_best_evaluation(meta, config, task)) {
    lines.emplace_back(
        "The metric or the evaluation data differs from the snapshot's: the best model is judged "
        "anew");
  }
  return lines;
}

bool keeps_best_evaluation(const SnapshotMeta& meta, const Config& config, const Task& task) {
  const auto& best = meta.best_eval;
  if (!best) return true;
  const SampleSource* samples = task.evaluation();
  return samples != nullptr && best->basis == score_basis(*samples, config.trainer);
}

bool same_data_order(const SnapshotMeta& meta, const Config& config, const Task& task) {
  return has_same_order(meta, config_from_json(meta.config_json), config, task);
}

}  // namespace ddp::train
