#include "trainer/app/plan/planned_training.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/config/keys/config_checks.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

double recomputed_share(const Config& config) {
  return trains_causal_lm(config.task) ? causal_architecture(config).recomputed_share(config) : 0.0;
}

/// What the planner has to know of a model's layers.
struct LayerFacts {
  int64_t largest = 0;   ///< Parameters.
  int64_t matrices = 0;  ///< Weight matrices.
  int64_t units = 0;     ///< Blocks.
  int64_t root = 0;      ///< Parameters outside of them.
};

/// Zeros for models whose parts may be several layers.
LayerFacts layer_facts(const Config& config, const TaskCost& task) {
  if (trains_causal_lm(config.task) && config.model != "gpt") return {};
  constexpr int64_t kOfBlock = 4;  // attention's two and the MLP's
  constexpr int64_t kOfBert = 6;   // with q, k and v apart
  LayerFacts facts;
  for (const ParameterPart& part : task.parameter_parts()) {
    const bool blocks = part.name == "blocks";
    const bool several = blocks || part.name == "layers";
    const int64_t layers = !several ? 1 : blocks ? config.gpt.n_layer : config.bert.n_layer;
    facts.matrices += !several ? 1 : layers * (blocks ? kOfBlock : kOfBert);
    facts.units += several ? layers : 0;
    facts.root += several ? 0 : part.count;
    facts.largest = std::max(facts.largest, part.count / std::max<int64_t>(1, layers));
  }
  return facts;
}

/// The trainer's own checks of a configuration that is divided among ranks.
std::string refusal(const Config& config, const TaskCost& task) {
  try {
    check_parallelism(config, Given({}, ""));
    task.check_division(config);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

PlannedTraining planned_training(const Config& config, const TaskCost& task) {
  if (task.memory_items(config, {}).empty())
    throw UserError(
        fmt::format("model: '{}' does not say what memory it needs; its memory_items() must, see "
                    "docs/add-a-model.md",
                    config.model));
  constexpr double kPasses = 3.0;  // forward once, backward twice that
  PlannedTraining training;
  training.config = config;
  training.memory = [&task](const Config& changed, const ComputePlace& place) {
    return task.memory_items(changed, place);
  };
  training.flops_per_sample = [&task](const Config& changed) {
    return task.flops_per_unit() * static_cast<double>(task.units_per_sample()) *
           (1.0 + recomputed_share(changed) / kPasses);
  };
  if (trains_causal_lm(config.task)) training.savers = causal_architecture(config).memory_savers();
  training.layout = task.layout();
  training.recomputes = recomputed_share(config) > 0.0;
  training.refusal = [&task](const Config& changed) { return refusal(changed, task); };
  const LayerFacts layers = layer_facts(config, task);
  training.largest_layer = layers.largest;
  training.matrices = layers.matrices;
  training.units = layers.units;
  training.root = layers.root;
  return training;
}

}  // namespace ddp::train
