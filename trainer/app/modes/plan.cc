// trainer plan: which strategy a training should use on GPUs that need not exist here.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "launcher/worker_contract.h"
#include "trainer/app/load_run.h"
#include "trainer/app/modes.h"
#include "trainer/app/parallel_plan.h"
#include "trainer/app/plan_cluster.h"
#include "trainer/app/plan_report.h"
#include "trainer/app/standard_output.h"
#include "trainer/metrics/text.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/run/batch_plan.h"
#include "trainer/runtime/error.h"
#include "trainer/task/task.h"

namespace ddp::train {
namespace {

double recomputed_share(const Config& config) {
  return config.task == TaskKind::kCausalLm ? causal_architecture(config).recomputed_share(config)
                                            : 0.0;
}

/// What the planner has to know of a model's layers.
struct LayerFacts {
  int64_t largest = 0;   ///< Parameters.
  int64_t matrices = 0;  ///< Of weights.
};

/// Zeros for models whose parts may be several layers.
LayerFacts layer_facts(const Config& config, const Task& task) {
  if (config.task == TaskKind::kCausalLm && config.model != "gpt") return {};
  constexpr int64_t kOfBlock = 4;  // attention's two and the MLP's
  constexpr int64_t kOfBert = 6;   // with q, k and v apart
  LayerFacts facts;
  for (const ParameterPart& part : task.parameter_parts()) {
    const bool blocks = part.name == "blocks";
    const bool several = blocks || part.name == "layers";
    const int64_t layers = !several ? 1 : blocks ? config.gpt.n_layer : config.bert.n_layer;
    facts.matrices += !several ? 1 : layers * (blocks ? kOfBlock : kOfBert);
    facts.largest = std::max(facts.largest, part.count / std::max<int64_t>(1, layers));
  }
  return facts;
}

/// Refers to `task`.
PlannedTraining planned(const Config& config, const Task& task) {
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
  if (config.task == TaskKind::kCausalLm)
    training.savers = causal_architecture(config).memory_savers();
  const LayerFacts layers = layer_facts(config, task);
  training.largest_layer = layers.largest;
  training.matrices = layers.matrices;
  return training;
}

/// "A step  524.29k tokens: 4 micro-batches of 16 samples on each rank"
std::string step_fact(const Config& config, const Task& task, int64_t ranks) {
  const BatchPlan batches = plan_batches(config.trainer, static_cast<int>(ranks), std::nullopt);
  const int64_t units = batches.micro_batches * config.trainer.batch_size * task.units_per_sample();
  const bool even = batches.micro_batches % ranks == 0;
  return fmt::format("A step       {} {}: {}{} of {} on each rank",
                     short_number(static_cast<double>(units)), task.unit(), even ? "" : "up to ",
                     counted(micro_batches_of_rank(config.trainer, ranks), "micro-batch"),
                     counted(config.trainer.batch_size, "sample"));
}

}  // namespace

int run_plan(const TrainerArgs& args) {
  const Config config = load_config(args.config, args.overrides);
  const PlanCluster described = plan_cluster(args.plan, config);
  Config of_data = config;
  of_data.trainer.batch_size = 1;  // data that are too few for training can be planned with
  const std::unique_ptr<Task> task = make_task(of_data, nullptr);
  const PlannedTraining training = planned(config, *task);
  PlanAnswer answer;
  answer.cuda = described.cluster.cuda;
  answer.facts = described.facts;
  answer.facts.push_back(step_fact(config, *task, args.plan.gpus));
  answer.plans = parallel_plans(training, described.cluster);
  answer.choice = chosen_plan(answer.plans, training, described.cluster);
  if (!answer.choice) answer.ways_out = ways_out(training, described.cluster);
  print(args.plan.json ? plan_json(answer) : plan_text(answer));
  return launch::kExitDone;
}

}  // namespace ddp::train
