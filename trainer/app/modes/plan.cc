// trainer plan: how to divide a training among GPUs that need not exist here.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "launcher/worker_contract.h"
#include "trainer/app/chosen_device.h"
#include "trainer/app/modes.h"
#include "trainer/app/plan/costed_training.h"
#include "trainer/app/plan/parallel_plan.h"
#include "trainer/app/standard_output.h"
#include "trainer/metrics/text.h"
#include "trainer/model/model_division.h"
#include "trainer/run/batch_plan.h"

namespace ddp::train {
namespace {

/// "A step       524.29k tokens: 4 micro-batches of 16 samples on each rank"
std::string step_fact(const CostedTraining& training, int64_t ranks) {
  const Config& config = training.config;
  const TaskCost& task = *training.cost;
  const int64_t copies = copies_of_model(config.distributed, ranks);
  const BatchPlan batches = plan_batches(config.trainer, static_cast<int>(copies), std::nullopt);
  const int64_t samples = batches.micro_batches * config.trainer.batch_size;
  const bool even = batches.micro_batches % copies == 0;
  return fmt::format(
      "A step       {} {}: {}{} of {} on each {}{}",
      short_number(static_cast<double>(samples * task.units_per_sample())), task.unit(),
      even ? "" : "up to ", counted(micro_batches_of_rank(config.trainer, copies), "micro-batch"),
      counted(config.trainer.batch_size, "sample"), copies == ranks ? "rank" : "copy of the model",
      training.samples.value_or(samples) < samples
          ? "; the data are too few for one: training would refuse them"
          : "");
}

}  // namespace

int run_plan(const TrainerArgs& args) {
  CostedTraining costed = costed_training(args);
  Config& config = costed.config;
  if (config.trainer.device == DeviceChoice::kCpu) settle_amp_here(config.trainer);
  const PlannedTraining training{config, *costed.cost, plan_cluster(args.plan, config)};
  std::vector<std::string> facts = training.cluster.facts;
  facts.push_back(step_fact(costed, args.plan.gpus));
  if (!costed.note.empty()) facts.push_back("Vocabulary   " + costed.note);
  const PlanAnswer answer = plan_training(training);
  print(args.plan.json ? plan_json(answer) : plan_text(answer, facts));
  return launch::kExitDone;
}

}  // namespace ddp::train
