// trainer eval: a snapshot's metrics on the evaluation part of its run, or on another text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "launcher/worker_contract.h"
#include "trainer/app/chosen_device.h"
#include "trainer/app/modes.h"
#include "trainer/app/out_of_memory.h"
#include "trainer/app/standard_output.h"
#include "trainer/config/keys/config_checks.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/hydra/compose/folders.h"
#include "trainer/interop/export_parts.h"
#include "trainer/model/load/run_folder.h"
#include "trainer/model/lora.h"
#include "trainer/optim/amp.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/device/device_share.h"
#include "trainer/parallel/environment/dist_env.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/group_error.h"
#include "trainer/runtime/process/kept_memory.h"
#include "trainer/snapshot/open_model.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/task/evaluator.h"
#include "trainer/task/task.h"

namespace ddp::train {
namespace {

/// On all of `data` alone.
void evaluate_on(Config& config, const std::string& data) {
  config.data.path = absolute_path(data);
  config.data.sources.clear();
  config.data.eval_sets.clear();
  config.data.eval_path.clear();
  config.data.truncate = 1.0;
  config.data.train_split = 0.0;
}

/// The configuration of the snapshot's run, for evaluation.
Config eval_config(const SnapshotMeta& meta, const EvalArgs& options) {
  Config config = config_from_json(meta.config_json);
  if (!config.adapted()) set_model_below(config, "");
  check_base_is_needed(config, options.snapshot, options.base);
  if (!options.base.empty()) set_model_below(config, absolute_path(options.base));
  config.data.test_path.clear();
  config.data.tokenizer.clear();  // the snapshot's own
  config.trainer.device = options.device;
  if (!options.data.empty()) evaluate_on(config, options.data);
  return config;
}

/// What is evaluated: a snapshot, or the model of a folder.
struct Subject {
  std::string path;
  std::optional<int64_t> step;  ///< Set for a snapshot.
  Config config;
  std::map<std::string, std::string> metadata;
  std::function<void(Task&)> load;  ///< Gives the task's model the weights.
};

Subject subject_of_snapshot(const EvalArgs& options) {
  const auto fetched = std::make_shared<FetchedSnapshot>(options.snapshot);
  const auto snapshot = std::make_shared<OpenedSnapshot>(open_snapshot(fetched->file()));
  return {snapshot->path, snapshot->meta.step, eval_config(snapshot->meta, options),
          snapshot->meta.task, [fetched, snapshot](Task& task) {
            for (const auto& p : task.parameters())
              snapshot->load_into(evaluated_tensor(*snapshot->file, p.name), p.tensor);
            for (const auto& each : task.buffers())
              snapshot->load_into("buffer." + each.name, each.tensor);
          }};
}

/// A folder has no run, whose settings would count: windows of the model's context, but no longer
/// than people evaluate on, and few at a time.
Subject subject_of_folder(const EvalArgs& options) {
  constexpr int64_t kLongestWindow = 2048;
  constexpr int64_t kRows = 8;
  const auto bundle = std::make_shared<ModelBundle>(open_model(options.snapshot, torch::kCPU));
  if (options.data.empty()) {
    throw UserError(fmt::format(
        "--snapshot: {}: is the folder of a model, which has no evaluation data; name a text or a "
        "table with --data, or questions with --suite",
        options.snapshot));
  }
  Config config = bundle->config;
  config.trainer.device = options.device;
  config.trainer.batch_size = kRows;
  evaluate_on(config, options.data);
  if (!has_position_table(config))
    config.data.block_size = std::min(config.data.block_size, kLongestWindow);
  return {options.snapshot, std::nullopt, config, bundle->metadata, [bundle](Task& task) {
            const torch::NoGradGuard no_grad;
            const auto parameters = task.parameters();
            for (std::size_t i = 0; i < parameters.size(); ++i)
              parameters[i].tensor.copy_(bundle->weights[i].tensor);
          }};
}

std::unique_ptr<Task> open_task(const Subject& subject, const EvalArgs& options) {
  try {
    return make_task(subject.config, &subject.metadata);
  } catch (const UserError& error) {
    if (options.data.empty()) throw;
    throw named_as(error, "data_config.path", "--data");
  }
}

std::string eval_table(const Evaluation& evaluation) {
  constexpr std::size_t kMostColumns = 10;
  std::string text;
  for (const auto& [name, value] : evaluation.metrics)
    text += fmt::format("{:<20} {:.6g}\n", name, value);
  if (evaluation.confusion.empty()) return text;
  return text + "\n" + confusion_table(abbreviated(evaluation.confusion, kMostColumns));
}

nlohmann::ordered_json confusion_json(const ConfusionMatrix& matrix) {
  return nlohmann::ordered_json::parse(fmt::format("{{{}}}", confusion_members(matrix)));
}

std::string eval_json(const Evaluation& evaluation, const Subject& subject) {
  nlohmann::ordered_json report = {{"snapshot", subject.path}};
  if (subject.step) report["step"] = *subject.step;
  report["data"] = subject.config.data.path;
  for (const auto& [name, value] : evaluation.metrics) report[name] = value;
  if (!evaluation.confusion.empty())
    report["confusion_matrix"] = confusion_json(evaluation.confusion);
  return json_output(report, 2);
}

/// Throws `error` without its advice to skip rows, for which eval has no option.
template <class Error>
[[noreturn]] void throw_as_of_eval(const Error& error) {
  std::string text = error.what();
  const auto advice = text.find(", or set data_config.on_bad_sample=skip");
  if (advice != std::string::npos) text.resize(advice);
  throw Error(text);
}

void check_is_finite(const Evaluation& evaluation, const std::string& path) {
  for (const auto& [name, value] : evaluation.metrics) {
    if (!name.ends_with("loss") || std::isfinite(value)) continue;
    throw GroupError(fmt::format(
        "{}: {} is {}: the model is useless; evaluate an earlier snapshot, or start the run over "
        "with a lower optimizer_config.learning_rate",
        path, name, value));
  }
}

int64_t batch_size_of(const Config& config, const EvalArgs& options) {
  return options.batch_size != 0 ? options.batch_size : config.trainer.batch_size;
}

void evaluate_subject(const Subject& subject, const EvalArgs& options, ProcessGroup& group,
                      const DevicePlan& plan) {
  const Config& config = subject.config;
  const auto task = open_task(subject, options);
  if (task->evaluation() == nullptr) {
    if (!options.data.empty())
      throw UserError(fmt::format("--data: {}: is too short to evaluate on", config.data.path));
    throw UserError(
        fmt::format("{}: there is nothing to evaluate on (train_split {}); name a text with --data",
                    config.data.path, config.data.train_split));
  }
  task->build_model(plan.device, std::nullopt);
  subject.load(*task);
  const auto on = [&](const SampleSource& samples) {
    return evaluate(*task, samples, batch_size_of(config, options), group, plan.device,
                    autocast_dtype(config.trainer));
  };
  auto evaluation = on(*task->evaluation());
  for (const auto& [name, samples] : task->evaluation_sets())
    add_set(evaluation, name, on(*samples));
  for (auto& [name, value] : evaluation->metrics)
    if (std::isnan(value)) value = std::fabs(value);  // "nan" instead of "-nan"
  if (group.is_main())
    print(options.json ? eval_json(*evaluation, subject) : eval_table(*evaluation));
  check_is_finite(*evaluation, subject.path);
}

}  // namespace

int run_eval(const TrainerArgs& args) {
  keep_freed_memory();  // every batch takes and gives back the same
  const auto& options = args.eval;
  if (!options.suite.empty()) return run_eval_suite(options);
  std::error_code ignored;
  const bool folder =
      std::filesystem::is_directory(options.snapshot, ignored) && !is_run_folder(options.snapshot);
  Subject subject = folder ? subject_of_folder(options) : subject_of_snapshot(options);
  Config& config = subject.config;
  const DistEnv env = DistEnv::from_environment();
  const DevicePlan plan = plan_device(config.trainer.device, config.distributed, env);
  ProcessGroup group(env, config.distributed, plan);
  if (!plan.device.is_cuda()) {
    const std::string warning = settle_amp_among(group, config.trainer);
    if (!warning.empty()) fmt::print(stderr, "warning: {}\n", warning);
  }
  hold_to_share(config.distributed, plan);  // after the group, whose threads do not count
  try {
    evaluate_subject(subject, options, group, plan);
  } catch (const UserError& error) {
    throw_as_of_eval(error);
  } catch (const FinalError& error) {
    throw_as_of_eval(error);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    hold_to_share({}, plan);  // the words need memory, too
    throw FinalError(fmt::format(
        "out of memory in the evaluation{}; lower --batch_size, which is {}, or evaluate less "
        "--data",
        memory_limit_note(config.distributed, plan.device), batch_size_of(config, options)));
  }
  return launch::kExitDone;
}

}  // namespace ddp::train
