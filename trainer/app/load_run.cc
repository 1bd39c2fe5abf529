#include "trainer/app/load_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "trainer/hydra/compose/folders.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/cost/model_sizes.h"
#include "trainer/model/load/pretrained_json.h"
#include "trainer/model/load/run_folder.h"
#include "trainer/model/lora.h"
#include "trainer/model/pretrained_config.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/hub_name.h"

namespace ddp::train {
namespace {

struct KindOfModel {
  TaskKind task = TaskKind::kCausalLm;
  std::string model;  ///< For a causal_lm.
};

/// A BERT's folder may be of either of its tasks.
KindOfModel kind_of_folder(const std::string& folder) {
  if (const auto* architecture = architecture_of_folder(folder))
    return {TaskKind::kCausalLm, std::string(architecture->name())};
  const bool classifier = !read_pretrained_bert(folder).labels.empty();
  return {classifier ? TaskKind::kTextClassification : TaskKind::kMaskedLm, ""};
}

KindOfModel kind_of(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return kind_of_folder(path);
  KindOfModel kind;
  with_pretrained_snapshot(
      path, {TaskKind::kCausalLm, TaskKind::kMaskedLm, TaskKind::kTextClassification},
      [&](const nlohmann::json&, const nlohmann::json& config, const std::string& task) {
        for (const TaskKind of_bert : {TaskKind::kMaskedLm, TaskKind::kTextClassification})
          if (task == task_name(of_bert)) kind.task = of_bert;
        if (trains_causal_lm(kind.task)) kind.model = config.value("model", "gpt");
      });
  return kind;
}

void take_kind(Config& config, const KindOfModel& there, const Given& given) {
  const auto is = [&](const std::string& what, const std::string& key, std::string_view value) {
    given.refuse("init_from", fmt::format("{} is {}, and {}={}; remove {}, or give another model",
                                          config.init_from, what, key, value, key));
  };
  const bool chosen = given.has("task");
  if (chosen && trains_causal_lm(config.task) != trains_causal_lm(there.task))
    is(trains_causal_lm(there.task) ? "model=" + there.model : "a BERT", "task",
       task_name(config.task));
  if (!chosen) config.task = there.task;
  if (!trains_causal_lm(there.task)) return;
  if (given.has("model") && config.model != there.model)
    is("model=" + there.model, "model", config.model);
  config.model = there.model;
}

/// Sets task, model and the init_from of that model's section to those of the folder or snapshot
/// that `config.init_from` names, and clears that; task and model that are given stay.
void follow_init_from(Config& config, const Given& given) {
  if (const std::string fix = how_to_fetch_model(config.init_from); !fix.empty())
    given.refuse("init_from", fix);
  const std::string path = absolute_path(config.init_from);
  std::string file = path;
  KindOfModel there;
  try {
    if (is_run_folder(path)) file = chosen_snapshot(path);
    there = kind_of(file);
  } catch (const UserError& error) {
    given.refuse("init_from", error.what());
  }
  take_kind(config, there, given);
  const ModelBelow other = model_below(config);
  const std::string given_path = other.path.empty() ? path : absolute_path(other.path);
  if (given_path != path && given_path != file)
    given.refuse("init_from", fmt::format("{} conflicts with {}={}; keep one", config.init_from,
                                          other.key, other.path));
  set_model_below(config, file);
  config.init_from.clear();
}

/// Also a model's own init_from may be a run's folder, which stands for one of its snapshots.
void choose_model(Config& config, const Given& given) {
  if (config.task == TaskKind::kImageClassification) return;
  if (!config.init_from.empty()) return follow_init_from(config, given);
  if (trains_causal_lm(config.task) && find_causal_architecture(config.model) == nullptr)
    return;  // complete_model() refuses it
  const ModelBelow below = model_below(config);
  if (below.path.empty()) return;
  if (const std::string fix = how_to_fetch_model(below.path); !fix.empty())
    given.refuse(below.key, fix);
  const std::string path = absolute_path(below.path);
  try {
    if (is_run_folder(path)) set_model_below(config, chosen_snapshot(path));
  } catch (const UserError& error) {
    given.refuse(below.key, error.what());
  }
}

}  // namespace

RunConfig load_run(const ConfigSource& source, const std::vector<std::string>& overrides,
                   std::optional<int64_t> sweep_job, DataFiles data) {
  RunConfig run = read_run(source, overrides, sweep_job, data, choose_model);
  complete_model(run.config, run.given);
  return run;
}

Config load_config(const ConfigSource& source, const std::vector<std::string>& overrides) {
  return load_run(source, overrides).config;
}

}  // namespace ddp::train
