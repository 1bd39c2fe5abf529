#include "trainer/hydra/compose/sweep_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "trainer/hydra/compose/compose.h"
#include "trainer/hydra/compose/folders.h"
#include "trainer/hydra/interpolation/interpolation.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

constexpr std::size_t kMostJobsInAll = 100'000;

/// One key with the overrides that it takes in turn.
struct Axis {
  std::string key;
  std::vector<std::string> overrides;
};

/// "+db@x", as a later override of the same key finds it.
std::string key_element(const Override& change) {
  return change.text.substr(0, change.text.find('='));
}

std::vector<std::string> values_of(const Override& change, const ConfigRepository& repository) {
  if (!change.sweep) {
    const bool written_anew = change.has_value && change.type != OverrideType::kDelete;
    return {written_anew ? key_element(change) + "=" + change.value_text : change.text};
  }
  std::vector<std::string> overrides;
  try {
    for (const std::string& value : sweep_values(*change.sweep, repository.options(change.key)))
      overrides.push_back(key_element(change) + "=" + value);
  } catch (const std::invalid_argument& e) {
    fail_at(change.value.place, "{}", e.what());
  }
  return overrides;
}

/// A later override of a key takes the place of an earlier one.
std::vector<Axis> axes_of(const std::vector<Override>& changes,
                          const ConfigRepository& repository) {
  std::vector<Axis> axes;
  for (const Override& change : changes) {
    Axis axis{key_element(change), values_of(change, repository)};
    const auto known = std::find_if(axes.begin(), axes.end(),
                                    [&axis](const Axis& other) { return other.key == axis.key; });
    if (known == axes.end()) {
      axes.push_back(std::move(axis));
    } else {
      *known = std::move(axis);
    }
  }
  return axes;
}

std::vector<std::vector<std::string>> product(const std::vector<Axis>& axes) {
  std::vector<std::vector<std::string>> jobs = {{}};
  for (const Axis& axis : axes) {
    if (axis.overrides.empty())
      throw UserError(fmt::format(
          "--multirun: '{}' has no value: its glob() matches no option, or its range() is "
          "empty; write the values out",
          axis.key));
    if (jobs.size() * axis.overrides.size() > kMostJobsInAll)
      throw UserError(
          fmt::format("--multirun: more than {} jobs; sweep over fewer values", kMostJobsInAll));
    std::vector<std::vector<std::string>> longer;
    for (const auto& job : jobs) {
      for (const std::string& change : axis.overrides) {
        longer.push_back(job);
        longer.back().push_back(change);
      }
    }
    jobs = std::move(longer);
  }
  return jobs;
}

/// hydra.sweeper.params: keys and what they take, before the command line's own.
std::vector<Override> sweeper_params(const Node& root) {
  std::vector<Override> changes;
  const Node params = select_value(root, "hydra.sweeper.params");
  if (params.kind != Kind::kMap && params.kind != Kind::kNull) {
    throw UserError(params.place.str() +
                    ": hydra.sweeper.params: must be a map, e.g. {key: \"1,2\"}");
  }
  for (const Entry& entry : params.entries)
    changes.push_back(parse_override(python_str(entry.key) + "=" + python_str(entry.value)));
  return changes;
}

std::string sweep_folder(const Node& root) {
  const Node folder = select_value(root, "hydra.sweep.dir");
  if (folder.kind != Kind::kString || folder.text.empty())
    throw UserError("hydra.sweep.dir: is empty; give a folder");
  return absolute_path(folder.text);
}

std::vector<std::string> without_sweeps(const std::vector<std::string>& overrides) {
  std::vector<std::string> fixed;
  for (const std::string& text : overrides) {
    if (!parse_override(text).sweep) fixed.push_back(text);
  }
  return fixed;
}

}  // namespace

bool asks_for_sweep(const ConfigSource& source, const std::vector<std::string>& overrides,
                    const KnownKeys& keys) {
  const Composed composed =
      compose_config(source, without_sweeps(overrides), keys, RunMode::kMultirun);
  const Node mode = select_value(composed.root, "hydra.mode");
  if (mode.kind == Kind::kNull) return false;
  const std::string name = mode.kind == Kind::kString ? mode.text : "";
  if (name != "RUN" && name != "MULTIRUN")
    fail_at(mode.place, "hydra.mode: '{}' is not a mode; give RUN or MULTIRUN",
            shown(python_str(mode)));
  return name == "MULTIRUN";
}

SweepPlan plan_sweep(const ConfigSource& source, const std::vector<std::string>& overrides,
                     const KnownKeys& keys) {
  std::vector<Override> task;
  std::vector<std::string> hydra;
  for (const std::string& text : overrides) {
    const Override change = parse_override(text);
    if (is_hydra_override(change)) {
      if (change.sweep)
        fail_at(change.value.place, "'{}' cannot be swept over; give one value", text);
      hydra.push_back(text);
    } else {
      task.push_back(change);
    }
  }
  const Composed composed =
      compose_config(source, without_sweeps(overrides), keys, RunMode::kMultirun);
  std::vector<Override> changes = sweeper_params(composed.root);
  changes.insert(changes.end(), task.begin(), task.end());

  SweepPlan result;
  result.folder = sweep_folder(composed.root);
  result.root = composed.root;
  for (auto& job : product(axes_of(changes, ConfigRepository(source)))) {
    result.labels.push_back(fmt::format("{}", fmt::join(job, " ")));
    result.jobs.push_back(hydra);
    result.jobs.back().insert(result.jobs.back().end(), job.begin(), job.end());
  }
  return result;
}

void write_sweep_file(const SweepPlan& plan) {
  publish_text(plan.folder, "multirun.yaml", node_to_yaml(plan.root), "hydra.sweep.dir");
}

}  // namespace ddp::train
