#include "trainer/config/keys/config_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "trainer/config/keys/bert_checks.h"
#include "trainer/config/keys/key_table.h"
#include "trainer/config/keys/pretrained_config.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/message.h"
#include "trainer/runtime/remote_path.h"

namespace ddp::train {
namespace {

constexpr const char* kSizes[] = {"gpt_config.n_layer", "gpt_config.n_head", "gpt_config.n_embd"};

[[noreturn]] void refuse(const Given& given, const std::string& key, const std::string& what) {
  throw UserError(given.where(key) + ": " + what);
}

void check_belongs_to_task(TaskKind task, const Given& given) {
  for (const Field& field : config_fields()) {
    if (belongs_to(field, task) || !given.has(field.path)) continue;
    refuse(given, field.path,
           fmt::format("has no meaning with task={}; remove it, or set another task",
                       task_name(task)));
  }
}

const ModelPreset& find_preset(const std::string& name, const Given& given) {
  std::vector<std::string> names;
  for (const ModelPreset& preset : model_presets()) {
    if (preset.name == name) return preset;
    names.emplace_back(preset.name);
  }
  refuse(given, "gpt_config.model_type",
         fmt::format("'{}' is not one of {}; {}", name, fmt::join(names, ", "),
                     did_you_mean(name, names, "choose one")));
}

void check_sizes_complete(const Given& given) {
  std::vector<std::string> present;
  std::vector<std::string> absent;
  for (const char* key : kSizes) (given.has(key) ? present : absent).emplace_back(key);
  if (absent.empty()) return;
  refuse(
      given, present.front(),
      fmt::format("{} {} missing; set n_layer, n_head and n_embd together, or model_type instead",
                  fmt::join(absent, ", "), absent.size() == 1 ? "is" : "are"));
}

void resolve_model(Config& config, const Given& given) {
  std::string first_size;
  for (const char* key : kSizes) {
    if (first_size.empty() && given.has(key)) first_size = key;
  }
  if (!first_size.empty()) {
    if (given.has("gpt_config.model_type")) {
      refuse(
          given, first_size,
          fmt::format(
              "conflicts with gpt_config.model_type={}; keep either the preset or the three sizes",
              config.gpt.model_type));
    }
    check_sizes_complete(given);
    return;
  }
  if (config.gpt.model_type.empty() && !config.gpt.init_from.empty()) return;
  if (config.gpt.model_type.empty()) config.gpt.model_type = "gpt2";
  const ModelPreset& preset = find_preset(config.gpt.model_type, given);
  config.gpt.n_layer = preset.n_layer;
  config.gpt.n_head = preset.n_head;
  config.gpt.n_embd = preset.n_embd;
}

/// What is not given follows the folder; everything else must agree with it.
void follow_pretrained(Config& config, const Given& given) {
  if (config.gpt.init_from.empty()) return;
  try {
    const PretrainedConfig pretrained = read_pretrained_config(absolute_path(config.gpt.init_from));
    GptConfig& gpt = config.gpt;
    if (gpt.n_layer == 0) {
      gpt.n_layer = pretrained.n_layer;
      gpt.n_head = pretrained.n_head;
      gpt.n_embd = pretrained.n_embd;
    }
    if (!given.has("gpt_config.activation") && pretrained.activation)
      gpt.activation = *pretrained.activation;
    if (!given.has("gpt_config.tie_weights")) gpt.tie_weights = pretrained.tie_weights;
    const auto differences = differences_from(pretrained, gpt, config.data.block_size);
    if (differences.empty()) return;
    throw UserError(
        fmt::format("{}: does not fit: {}", gpt.init_from, fmt::join(differences, "; ")));
  } catch (const UserError& error) {
    refuse(given, "gpt_config.init_from", error.what());
  }
}

void check_whole(const AutoNumber& number, const char* key, const char* unit, const Given& given) {
  if (number.value == std::floor(number.value)) return;
  refuse(given, key,
         fmt::format("{} is not a whole number; give auto or a number of {}", number.value, unit));
}

void check_whole_numbers(const Config& config, const Given& given) {
  check_whole(config.data.stride, "data_config.stride", "tokens", given);
  check_whole(config.gpt.loss_chunk_size, "gpt_config.loss_chunk_size", "tokens", given);
  check_whole(config.trainer.snapshot_every, "trainer_config.snapshot_every", "steps", given);
}

void check_heads(const Config& config, const Given& given) {
  const GptConfig& gpt = config.gpt;
  if (gpt.n_embd % gpt.n_head == 0) return;
  refuse(given, "gpt_config.n_embd",
         fmt::format(
             "{} is not divisible by gpt_config.n_head={}; the nearest widths are {} and {}",
             gpt.n_embd, gpt.n_head, std::max(gpt.n_head, gpt.n_embd / gpt.n_head * gpt.n_head),
             (gpt.n_embd / gpt.n_head + 1) * gpt.n_head));
}

void check_image(const Config& config, const Given& given) {
  const ImageConfig& image = config.image;
  if (image.channels && *image.channels == 2)
    refuse(given, "image_config.channels", "2 is neither gray (1) nor RGB (3)");
  if (image.network == ImageNetworkKind::kConv) return;
  if (image.batch_norm != BatchNormKind::kOff) {
    refuse(given, "image_config.batch_norm",
           "a dense network has none; set it to off, or image_config.network to conv");
  }
}

/// The keys of the model that the task trains.
void complete_model(Config& config, const Given& given) {
  switch (config.task) {
    case TaskKind::kCausalLm:
      resolve_model(config, given);
      follow_pretrained(config, given);
      check_heads(config, given);
      return;
    case TaskKind::kMaskedLm:
    case TaskKind::kTextClassification:
      return complete_bert(config, given);
    case TaskKind::kImageClassification:
      return check_image(config, given);
  }
}

}  // namespace

std::string absolute_path(const std::string& path) {
  std::string expanded = path;
  const char* home = std::getenv("HOME");
  if (home != nullptr && (path == "~" || path.starts_with("~/"))) expanded = home + path.substr(1);
  std::string out = std::filesystem::absolute(expanded).lexically_normal().string();
  if (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

namespace {

bool matches_a_file(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos) return false;
  ::glob_t found = {};
  const bool some = ::glob(pattern.c_str(), 0, nullptr, &found) == 0;
  ::globfree(&found);
  return some;
}

/// `key` and its value: a file, a folder or a glob. What is in it is seen when it is read.
void check_data_files(const char* key, const std::string& path, const std::string& as_given,
                      const Given& given) {
  struct stat info {};
  const std::string from =
      as_given.starts_with('/')
          ? ""
          : fmt::format(" (from {})", std::filesystem::current_path().string());
  if (stat(path.c_str(), &info) != 0) {
    const int error = errno;
    if (matches_a_file(path)) return;
    const std::string fix =
        error == ENOENT ? "give a file or a folder; relative paths start at the current directory"
                        : "check the path and its permissions";
    refuse(given, key, fmt::format("{}: {}{}; {}", as_given, std::strerror(error), from, fix));
  }
  if (access(path.c_str(), R_OK) != 0) {
    refuse(given, key,
           fmt::format("{}: {}{}; make it readable", as_given, std::strerror(errno), from));
  }
}

void resolve_data_paths(DataConfig& data, const Given& given) {
  const DataConfig as_given = data;
  data.path = absolute_path(data.path);
  check_data_files("data_config.path", data.path, as_given.path, given);
  if (!data.eval_path.empty()) {
    data.eval_path = absolute_path(data.eval_path);
    check_data_files("data_config.eval_path", data.eval_path, as_given.eval_path, given);
  }
  if (!data.test_path.empty()) {
    data.test_path = absolute_path(data.test_path);
    check_data_files("data_config.test_path", data.test_path, as_given.test_path, given);
  }
  const bool named = data.tokenizer.empty() || data.tokenizer == "char" || data.tokenizer == "byte";
  if (named) return;
  if (data.tokenizer == "bpe" || data.tokenizer == "wordpiece") {
    refuse(given, "data_config.tokenizer",
           fmt::format("{0}: is trained first; write trainer tokenize --tokenizer {0} --train ..., "
                       "and give its folder",
                       data.tokenizer));
  }
  data.tokenizer = absolute_path(data.tokenizer);
  check_data_files("data_config.tokenizer", data.tokenizer, as_given.tokenizer, given);
}

/// An object in a store stays as it is; file:// and everything else becomes an absolute path.
void resolve_snapshot_path(std::string& path, const Given& given) {
  try {
    if (is_remote(path)) {
      split_remote(path);
      return;
    }
    path = absolute_path(local_path(path));
  } catch (const UserError& error) {
    refuse(given, "trainer_config.snapshot_path", error.what());
  }
}

void check_step_size(const Config& config, const Given& given) {
  constexpr double kMostTokens = 1e15;  // and far from the end of int64, whatever the ranks
  const double tokens = static_cast<double>(config.trainer.batch_size) *
                        static_cast<double>(config.trainer.grad_accumulation_steps) *
                        static_cast<double>(config.data.block_size);
  if (tokens <= kMostTokens) return;
  refuse(given, "trainer_config.batch_size",
         fmt::format("{} x grad_accumulation_steps={} x block_size={} is more than {} tokens per "
                     "step; reduce one of them",
                     config.trainer.batch_size, config.trainer.grad_accumulation_steps,
                     config.data.block_size, kMostTokens));
}

void check_global_batch(const Config& config, const Given& given) {
  const TrainerConfig& trainer = config.trainer;
  if (!trainer.global_batch_size) return;
  const std::string key = "trainer_config.global_batch_size";
  if (given.has("trainer_config.grad_accumulation_steps")) {
    refuse(
        given, key,
        "conflicts with trainer_config.grad_accumulation_steps, which follows from it; keep one");
  }
  if (*trainer.global_batch_size % trainer.batch_size != 0) {
    refuse(given, key,
           fmt::format("{} is not a multiple of trainer_config.batch_size={}; the nearest is {}",
                       *trainer.global_batch_size, trainer.batch_size,
                       std::max<int64_t>(1, *trainer.global_batch_size / trainer.batch_size) *
                           trainer.batch_size));
  }
}

void check_optimizer(const Config& config, const Given& given) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.min_lr > optimizer.learning_rate) {
    refuse(given, "optimizer_config.min_lr",
           fmt::format("{} is above optimizer_config.learning_rate={}; lower it", optimizer.min_lr,
                       optimizer.learning_rate));
  }
  const bool momentum = !optimizer.momentum.automatic && optimizer.momentum.value > 0.0;
  if (optimizer.nesterov && optimizer.name == OptimizerName::kSgd && !momentum) {
    refuse(given, "optimizer_config.nesterov",
           "needs momentum; set optimizer_config.momentum, e.g. to 0.9");
  }
}

void check_devices(const DistributedConfig& config, const Given& given) {
  if (config.ranks_per_device.value_or(1) == 1 || config.backend != Backend::kNccl) return;
  refuse(given, "distributed_config.ranks_per_device",
         fmt::format("{} ranks cannot share a GPU with distributed_config.backend=nccl, which "
                     "needs one for each; set backend to auto or gloo",
                     *config.ranks_per_device));
}

void check_logging(const Config& config, const Given& given) {
  if (!config.logging.histogram_every_steps || config.logging.tensorboard) return;
  refuse(given, "logging_config.histogram_every_steps",
         "histograms go to TensorBoard's files alone; add logging_config.tensorboard=true");
}

void check_profile(const Config& config, const Given& given) {
  const auto& start = config.profile.start;
  // A configuration that a run has written names every key, with its default.
  if (!start && given.has("profile.steps") && config.profile.steps != ProfileConfig{}.steps)
    refuse(given, "profile.steps", "says how many steps, not from which on; set profile.start");
  const auto& last = config.trainer.max_steps;
  if (!start || !last || *start <= *last) return;
  refuse(given, "profile.start",
         fmt::format("{} is beyond the end of the run, trainer_config.max_steps={}; give a step "
                     "from 1 to {}",
                     *start, *last, *last));
}

}  // namespace

void complete_config(Config& config, const Given& given) {
  check_belongs_to_task(config.task, given);
  check_whole_numbers(config, given);
  complete_model(config, given);
  check_step_size(config, given);
  check_global_batch(config, given);
  check_optimizer(config, given);
  check_devices(config.distributed, given);
  check_logging(config, given);
  check_profile(config, given);
  const bool steps_alone = config.trainer.max_steps && !given.has("trainer_config.max_epochs");
  if (steps_alone) config.trainer.max_epochs = kUnlimitedEpochs;
}

void resolve_paths(Config& config, const Given& given, bool own_folder) {
  std::string& snapshot = config.trainer.snapshot_path;
  if (!config.gpt.init_from.empty()) config.gpt.init_from = absolute_path(config.gpt.init_from);
  if (!config.bert.init_from.empty()) config.bert.init_from = absolute_path(config.bert.init_from);
  config.hydra.run_dir = absolute_path(config.hydra.run_dir);
  const bool in_run_folder = own_folder || config.hydra.job_chdir;
  const bool relative = snapshot.find("://") == std::string::npos && !snapshot.starts_with('/') &&
                        !snapshot.starts_with('~');
  if (in_run_folder && relative) snapshot = config.hydra.run_dir + "/" + snapshot;
  config.trainer.snapshot_cache = absolute_path(config.trainer.snapshot_cache);
  resolve_snapshot_path(snapshot, given);
  resolve_data_paths(config.data, given);
}

}  // namespace ddp::train
