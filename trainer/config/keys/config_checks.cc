#include "trainer/config/keys/config_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <set>

#include "trainer/config/keys/idle_keys.h"
#include "trainer/config/keys/key_table.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

/// ", which is none of gpt, llama" for a misspelled model, "" for one that has keys.
std::string unknown_model_note(const Config& config) {
  std::set<std::string> models;
  for (const Field& field : config_fields())
    if (!field.model.empty()) models.insert(std::string(field.model));
  return models.contains(config.model)
             ? ""
             : fmt::format(", which is none of {}", fmt::join(models, ", "));
}

/// As in a recipe for several models: auto asks for nothing where there is nothing to choose.
bool is_auto(const Given& given, const std::string& key) {
  const auto found = given.values().find(key);
  return found != given.values().end() && found->second.text == "auto";
}

/// A default asks for nothing either: --cfg prints every key.
void check_belongs_to_run(const Config& config, const Given& given) {
  for (const Field& field : config_fields()) {
    if (belongs_to(field, config) || !is_chosen(field.path, config, given) ||
        is_auto(given, field.path))
      continue;
    Config other = config;
    other.model = field.model;
    if (!field.model.empty() && belongs_to(field, other)) {
      given.refuse(field.path,
                   fmt::format("does not apply to model={}{}; remove it, or set model={}",
                               config.model, unknown_model_note(config), field.model));
    }
    given.refuse(field.path,
                 fmt::format("does not apply to task={}; remove it, or set another task",
                             task_name(config.task)));
  }
}

void check_sources(const DataConfig& data, const Given& given) {
  if (data.sources.empty()) {
    if (data.path.empty()) given.refuse("data_config.path", "is null; give a file or a folder");
    return;
  }
  if (given.has("data_config.path"))
    given.refuse("data_config.sources", "conflicts with data_config.path; keep one");
  const double sum =
      std::accumulate(data.sources.begin(), data.sources.end(), 0.0,
                      [](double all, const WeightedSource& source) { return all + source.weight; });
  if (sum > 0.0 && std::isfinite(sum)) return;
  given.refuse("data_config.sources", fmt::format("the weights sum to {}; give finite ones, at "
                                                  "least one of them above 0",
                                                  sum));
}

void check_chat(const DataConfig& data, const Given& given) {
  const bool chat = data.format == DataFormat::kChat;
  if (!chat && data.loss_on != LossOn::kAssistant)
    given.refuse("data_config.loss_on", "is for data_config.format=chat; set that, or remove it");
  if (chat && data.mask_documents) {
    given.refuse("data_config.mask_documents",
                 "conversations never see each other with data_config.format=chat; remove it");
  }
  const bool own_stride = !data.stride.automatic && data.stride.value != DataConfig{}.stride.value;
  if (chat && own_stride) {
    given.refuse("data_config.stride",
                 "has no effect on conversations, which are packed whole with "
                 "data_config.format=chat; remove it");
  }
}

/// Names become parts of metrics' names.
void check_eval_sets(const DataConfig& data, const Given& given) {
  constexpr std::size_t kLongestName = 100;
  std::set<std::string> names;
  for (const NamedSet& set : data.eval_sets) {
    const bool legal =
        !set.name.empty() && set.name.size() <= kLongestName &&
        std::all_of(set.name.begin(), set.name.end(), [](char c) {
          return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
        });
    if (!legal) {
      given.refuse("data_config.eval_sets", fmt::format("'{}' is no name for a set; use up to {} "
                                                        "letters, digits, _ and -",
                                                        shown(set.name), kLongestName));
    }
    if (set.path.empty() || !names.insert(set.name).second)
      given.refuse("data_config.eval_sets", fmt::format("'{}' needs one path", set.name));
  }
}

void check_step_size(const Config& config, const Given& given) {
  constexpr double kMostTokens = 1e15;  // and far from the end of int64, whatever the ranks
  const double tokens = static_cast<double>(config.trainer.batch_size) *
                        static_cast<double>(config.trainer.grad_accumulation_steps) *
                        static_cast<double>(config.data.block_size);
  if (tokens <= kMostTokens) return;
  given.refuse(
      "trainer_config.batch_size",
      fmt::format("{} x grad_accumulation_steps={} x block_size={} is more than {} tokens per "
                  "step; reduce one of them",
                  config.trainer.batch_size, config.trainer.grad_accumulation_steps,
                  config.data.block_size, kMostTokens));
}

void check_global_batch(const Config& config, const Given& given) {
  const TrainerConfig& trainer = config.trainer;
  if (!trainer.global_batch_size) return;
  const std::string key = "trainer_config.global_batch_size";
  if (is_chosen("trainer_config.grad_accumulation_steps", config, given)) {
    given.refuse(
        key,
        "conflicts with trainer_config.grad_accumulation_steps, which follows from it; keep one");
  }
  if (*trainer.global_batch_size % trainer.batch_size != 0) {
    given.refuse(
        key, fmt::format("{} is not a multiple of trainer_config.batch_size={}; the nearest is {}",
                         *trainer.global_batch_size, trainer.batch_size,
                         std::max<int64_t>(1, *trainer.global_batch_size / trainer.batch_size) *
                             trainer.batch_size));
  }
}

/// Two optimizers share a run only with muon, which has adamw for what is not a hidden matrix.
void check_optimizers_of_groups(const OptimizerConfig& optimizer, const Given& given) {
  for (std::size_t i = 0; i < optimizer.param_groups.size(); ++i) {
    const auto& own = optimizer.param_groups[i].optimizer;
    const bool of_muon = own == OptimizerName::kMuon || own == OptimizerName::kAdamW;
    if (!own || (of_muon && optimizer.name == OptimizerName::kMuon)) continue;
    given.refuse("optimizer_config.param_groups",
                 fmt::format("entry {}: optimizer={} needs optimizer_config.name=muon{}; {}", i,
                             facts_of(*own).name, of_muon ? "" : " and is muon or adamw",
                             of_muon ? "set it, or remove optimizer" : "remove it"));
  }
}

void check_state_bits(const Config& config, const Given& given) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.state_bits == StateBits::k32) return;
  const auto refuse = [&](const std::string& what) {
    given.refuse("optimizer_config.state_bits", what);
  };
  if (optimizer.name != OptimizerName::kAdamW && optimizer.name != OptimizerName::kAdam) {
    refuse(
        fmt::format("is for the averages of adamw and adam, not for {}; set "
                    "optimizer_config.name=adamw or remove state_bits",
                    facts_of(optimizer.name).name));
  }
  if (config.distributed.tensor > 1) {
    refuse(
        fmt::format("needs whole blocks of {} elements, and distributed_config.tensor={} cuts "
                    "them; use strategy=zero1, zero2 or zero3 instead, or remove state_bits",
                    kStateBlock, config.distributed.tensor));
  }
}

void check_optimizer(const Config& config, const Given& given) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.min_lr > optimizer.learning_rate) {
    given.refuse("optimizer_config.min_lr",
                 fmt::format("{} is above optimizer_config.learning_rate={}; lower it",
                             optimizer.min_lr, optimizer.learning_rate));
  }
  const bool momentum = !optimizer.momentum.automatic && optimizer.momentum.value > 0.0;
  if (optimizer.nesterov && optimizer.name == OptimizerName::kSgd && !momentum) {
    given.refuse("optimizer_config.nesterov",
                 "needs momentum; set optimizer_config.momentum, e.g. to 0.9");
  }
  if (optimizer.warmup_ratio > 0.0 && optimizer.warmup_steps > 0) {
    given.refuse("optimizer_config.warmup_ratio",
                 fmt::format("conflicts with optimizer_config.warmup_steps={}; keep one",
                             optimizer.warmup_steps));
  }
  check_optimizers_of_groups(optimizer, given);
  check_state_bits(config, given);
}

void check_strategy(const Config& config, const Given& given) {
  const Strategy strategy = config.distributed.strategy;
  if (!divides_state(strategy)) return;
  const std::string_view name = name_of(strategy);
  if (config.distributed.gradient_compression != GradientCompression::kNone) {
    given.refuse("distributed_config.gradient_compression",
                 fmt::format("is of strategy=ddp only; with strategy={} gradients travel as they "
                             "are: remove it",
                             name));
  }
}

void check_memory_copies(const Config& config, const Given& given) {
  const DistributedConfig& how = config.distributed;
  const std::string divided = how.tensor > 1     ? fmt::format("tensor={}", how.tensor)
                              : how.expert > 1   ? fmt::format("expert={}", how.expert)
                              : how.pipeline > 1 ? fmt::format("pipeline={}", how.pipeline)
                              : divides_state(how.strategy)
                                  ? fmt::format("strategy={}", name_of(how.strategy))
                                  : "";
  if (divided.empty() || !config.trainer.ram_snapshots ||
      config.trainer.snapshot_shards != AutoSwitch::kFalse)
    return;
  given.refuse("trainer_config.ram_snapshots",
               fmt::format("needs each rank to copy its part with distributed_config.{}; remove "
                           "trainer_config.snapshot_shards=false",
                           divided));
}

void check_offload(const DistributedConfig& config, const Given& given) {
  if (config.offload == Offload::kNone || config.tensor * config.pipeline == 1) return;
  given.refuse("distributed_config.offload",
               fmt::format("optimizer is not supported with {}={}; use strategy=zero1 instead of "
                           "offload, or strategy=zero3 with offload on whole layers",
                           config.tensor > 1 ? "tensor" : "pipeline",
                           config.tensor > 1 ? config.tensor : config.pipeline));
}

void check_tensor(const Config& config, const Given& given) {
  const int64_t ranks = config.distributed.tensor;
  if (ranks == 1) {
    if (config.distributed.sequence_parallel) {
      given.refuse("distributed_config.sequence_parallel",
                   "belongs to ranks that share layers; set distributed_config.tensor, e.g. to 2");
    }
    return;
  }
  const auto refuse = [&](const std::string& what) {
    given.refuse("distributed_config.tensor", what);
  };
  if (config.optimizer.name == OptimizerName::kMuon) {
    refuse(
        fmt::format("{} ranks hold parts of matrices, and optimizer_config.name=muon needs "
                    "whole ones; use name=adamw",
                    ranks));
  }
  if (config.trainer.label_smoothing > 0.0) {
    refuse(
        fmt::format("{} ranks hold parts of the logits, and trainer_config.label_smoothing needs "
                    "whole ones; use strategy=zero3 instead, or remove label_smoothing",
                    ranks));
  }
}

void check_expert(const Config& config, const Given& given) {
  const DistributedConfig& how = config.distributed;
  if (how.expert == 1) return;
  const std::string other = how.strategy != Strategy::kDdp
                                ? fmt::format("strategy={}", name_of(how.strategy))
                            : how.tensor > 1   ? fmt::format("tensor={}", how.tensor)
                            : how.pipeline > 1 ? fmt::format("pipeline={}", how.pipeline)
                                               : fmt::format("offload={}", name_of(how.offload));
  const std::string adapted = config.lora.enabled()            ? "lora.rank"
                              : config.prompt_tuning.enabled() ? "prompt_tuning.tokens"
                              : config.quantize.enabled()      ? "quantize.base"
                                                               : "";
  const bool alone = how.strategy == Strategy::kDdp && how.tensor == 1 && how.pipeline == 1 &&
                     how.offload == Offload::kNone;
  if (alone && adapted.empty()) return;
  given.refuse("distributed_config.expert",
               fmt::format("is not supported with {}; remove one of them",
                           alone ? adapted : "distributed_config." + other));
}

void check_schedule(const DistributedConfig& config, const Given& given) {
  const bool interleaved = config.pipeline_schedule == PipelineSchedule::kInterleaved;
  if (interleaved && config.pipeline_chunks == 1)
    given.refuse("distributed_config.pipeline_schedule",
                 "interleaved needs several stages on each rank; set "
                 "distributed_config.pipeline_chunks=2 or use 1f1b");
  if (!interleaved && config.pipeline_chunks > 1) {
    given.refuse("distributed_config.pipeline_chunks",
                 fmt::format("{} has one stage on each rank; add "
                             "distributed_config.pipeline_schedule=interleaved",
                             name_of(config.pipeline_schedule)));
  }
}

void check_pipeline(const Config& config, const Given& given) {
  const DistributedConfig& distributed = config.distributed;
  if (distributed.pipeline == 1) return;
  check_schedule(distributed, given);
  const auto refuse = [&](const std::string& what) {
    given.refuse("distributed_config.pipeline", what);
  };
  if (distributed.strategy == Strategy::kZero2 || distributed.strategy == Strategy::kZero3) {
    refuse(
        fmt::format("strategy={} communicates in every micro-batch, and each would stop the "
                    "stages after it; use strategy=zero1, or ddp, whose stages hold 1/{} of the "
                    "model",
                    name_of(distributed.strategy), distributed.pipeline));
  }
  if (config.prompt_tuning.enabled() || !config.prompt_tuning.init_from.empty())
    refuse(
        "virtual tokens (prompt_tuning.tokens) are trained on whole models; use strategy=zero3 "
        "to divide one");
}

void check_devices(const DistributedConfig& config, const Given& given) {
  if (config.ranks_per_device.value_or(1) == 1 || config.backend != Backend::kNccl) return;
  given.refuse(
      "distributed_config.ranks_per_device",
      fmt::format("{} ranks cannot share a GPU with distributed_config.backend=nccl, which "
                  "needs one for each; set backend to auto or gloo",
                  *config.ranks_per_device));
}

void check_preference(const PreferenceConfig& preference, const Given& given) {
  const bool reads = preference.loss_type == PreferenceLoss::kSigmoid ||
                     preference.loss_type == PreferenceLoss::kRobust;
  if (reads || preference.label_smoothing == 0.0) return;
  given.refuse("preference_config.label_smoothing",
               fmt::format("is for loss_type=sigmoid and robust, not for {}; remove it",
                           name_of(preference.loss_type)));
}

/// Dropout is off unless it is given, as in TRL: the reference is computed without.
void settle_preference(Config& config, const Given& given) {
  if (config.task != TaskKind::kPreference) return;
  GptConfig& gpt = config.gpt;
  if (!given.has("gpt_config.embd_pdrop")) gpt.embd_pdrop = 0.0;
  if (!given.has("gpt_config.resid_pdrop")) gpt.resid_pdrop = 0.0;
  if (!given.has("gpt_config.attn_pdrop")) gpt.attn_pdrop = 0.0;
}

void check_logging(const Config& config, const Given& given) {
  const auto& metrics = config.metrics;
  if (!config.logging.jsonl && (metrics.wandb != WandbMode::kOff || metrics.mlflow)) {
    given.refuse(metrics.mlflow ? "metrics_config.mlflow" : "metrics_config.wandb",
                 "sends metrics.jsonl, which logging_config.jsonl=false turns off; remove that");
  }
  if (!config.logging.histogram_every_steps || config.logging.tensorboard) return;
  given.refuse("logging_config.histogram_every_steps",
               "histograms go to TensorBoard files only; add logging_config.tensorboard=true");
}

void check_profile(const Config& config, const Given& given) {
  const auto& start = config.profile.start;
  const auto& last = config.trainer.max_steps;
  if (!start || !last || *start <= *last) return;
  given.refuse(
      "profile.start",
      fmt::format("{} is beyond the end of the run, trainer_config.max_steps={}; give a step "
                  "from 1 to {}",
                  *start, *last, *last));
}

}  // namespace

bool Given::has(const std::string& key) const {
  const auto found = values_.find(key);
  return found != values_.end() && found->second.kind != Kind::kNull;
}

void Given::refuse(const std::string& key, const std::string& what) const {
  const auto found = values_.find(key);
  fail_at(found == values_.end() ? Place{std::make_shared<const std::string>(file_)}
                                 : found->second.place,
          "{}: {}", key, what);
}

void check_parallelism(const Config& config, const Given& given) {
  check_strategy(config, given);
  check_memory_copies(config, given);
  check_offload(config.distributed, given);
  check_tensor(config, given);
  check_pipeline(config, given);
  check_expert(config, given);
}

void complete_config(Config& config, const Given& given) {
  check_belongs_to_run(config, given);
  check_sources(config.data, given);
  check_chat(config.data, given);
  check_eval_sets(config.data, given);
  check_step_size(config, given);
  check_global_batch(config, given);
  check_optimizer(config, given);
  check_parallelism(config, given);
  check_devices(config.distributed, given);
  check_preference(config.preference, given);
  settle_preference(config, given);
  check_logging(config, given);
  check_profile(config, given);
  const bool steps_alone = config.trainer.max_steps && !given.has("trainer_config.max_epochs");
  if (steps_alone) config.trainer.max_epochs = kUnlimitedEpochs;
}

}  // namespace ddp::train
