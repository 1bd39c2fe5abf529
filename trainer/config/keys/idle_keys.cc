#include "trainer/config/keys/idle_keys.h"

#include <fmt/format.h>

#include "trainer/config/keys/key_table.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/runtime/files/remote_path.h"

namespace ddp::train {
namespace {

struct Idle {
  const char* key;
  bool (*used)(const Config& config);
  const char* why;  ///< After "has no effect ".
};

bool snapshots_automatic(const Config& config) { return config.trainer.snapshot_every.automatic; }
bool snapshots_remote(const Config& config) { return is_remote(config.trainer.snapshot_path); }
bool uses_amp(const Config& config) { return config.trainer.use_amp; }
bool samples(const Config& config) { return config.trainer.sample_every_steps > 0; }
bool stops_early(const Config& config) {
  return config.trainer.early_stopping_patience.has_value();
}
bool rate_decays(const Config& config) {
  return config.optimizer.lr_schedule != LrSchedule::kConstant;
}
bool rate_is_polynomial(const Config& config) {
  return config.optimizer.lr_schedule == LrSchedule::kPolynomial;
}
bool is_sgd(const Config& config) { return config.optimizer.name == OptimizerName::kSgd; }
bool optimizer_adapts(const Config& config) {
  return !is_sgd(config);  // muon has adamw for some parameters
}
bool optimizer_has_momentum(const Config& config) {
  return is_sgd(config) || config.optimizer.name == OptimizerName::kMuon;
}
bool weights_decay(const Config& config) {
  return config.optimizer.weight_decay > 0.0 || !config.optimizer.param_groups.empty();
}
bool has_buckets(const Config& config) { return config.distributed.strategy != Strategy::kZero3; }
bool is_ddp(const Config& config) { return !divides_state(config.distributed.strategy); }
bool is_pipeline(const Config& config) { return config.distributed.pipeline > 1; }
bool splits_data(const Config& config) { return config.data.eval_path.empty(); }
bool is_convolution(const Config& config) {
  return config.image.network == ImageNetworkKind::kConv;
}
bool profiles(const Config& config) { return config.profile.start.has_value(); }

constexpr Idle kIdle[] = {
    {"trainer_config.snapshot_overhead", snapshots_automatic, "without snapshot_every=auto"},
    {"trainer_config.snapshot_min_interval_s", snapshots_automatic, "without snapshot_every=auto"},
    {"trainer_config.snapshot_disk_share", snapshots_automatic, "without snapshot_every=auto"},
    {"trainer_config.snapshot_gb_per_hour", snapshots_automatic, "without snapshot_every=auto"},
    {"trainer_config.snapshot_cache", snapshots_remote, "with a local snapshot_path"},
    {"trainer_config.early_stopping_min_delta", stops_early, "without early_stopping_patience"},
    {"trainer_config.sample_prompt", samples, "without sample_every_steps"},
    {"trainer_config.sample_tokens", samples, "without sample_every_steps"},
    {"trainer_config.amp_dtype", uses_amp, "without use_amp=true"},
    {"trainer_config.amp_on_cpu", uses_amp, "without use_amp=true"},
    {"optimizer_config.min_lr", rate_decays, "with lr_schedule=constant"},
    {"optimizer_config.decay_steps", rate_decays, "with lr_schedule=constant"},
    {"optimizer_config.lr_power", rate_is_polynomial, "without lr_schedule=polynomial"},
    {"optimizer_config.betas", optimizer_adapts, "with name=sgd"},
    {"optimizer_config.eps", optimizer_adapts, "with name=sgd"},
    {"optimizer_config.momentum", optimizer_has_momentum, "with name=adamw or adam; see betas"},
    {"optimizer_config.nesterov", is_sgd, "without name=sgd"},
    {"optimizer_config.decay_embeddings", weights_decay, "with weight_decay=0"},
    {"distributed_config.bucket_cap_mb", has_buckets, "with strategy=zero3"},
    {"distributed_config.gradient_as_bucket_view", is_ddp, "with strategy=zero1, zero2 or zero3"},
    {"distributed_config.static_graph", is_ddp, "with strategy=zero1, zero2 or zero3"},
    {"distributed_config.pipeline_schedule", is_pipeline, "with pipeline=1"},
    {"distributed_config.pipeline_chunks", is_pipeline, "with pipeline=1"},
    {"data_config.train_split", splits_data, "with eval_path: all of path is used for training"},
    {"image_config.conv_channels", is_convolution, "with network=dense"},
    {"profile.steps", profiles, "without profile.start"},
};

}  // namespace

bool is_chosen(const std::string& key, const Config& config, const Given& given) {
  if (!given.has(key)) return false;
  const Field& field = *find_field(key);
  return node_to_json(current_value(field, config)) != node_to_json(current_value(field, Config()));
}

std::vector<std::string> idle_keys(const Config& config, const Given& given) {
  std::vector<std::string> lines;
  for (const Idle& idle : kIdle) {
    const Field& field = *find_field(idle.key);
    if (!belongs_to(field, config) || idle.used(config) || !is_chosen(idle.key, config, given))
      continue;
    lines.push_back(fmt::format("{}: has no effect {}", idle.key, idle.why));
  }
  return lines;
}

}  // namespace ddp::train
