// trainer estimate: what a training takes, before it runs.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "launcher/worker_contract.h"
#include "trainer/app/chosen_device.h"
#include "trainer/app/modes.h"
#include "trainer/app/plan/costed_training.h"
#include "trainer/app/plan/memory_estimate.h"
#include "trainer/app/standard_output.h"
#include "trainer/metrics/text.h"
#include "trainer/model/cost/training_cost.h"
#include "trainer/model/model_division.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/environment/dist_env.h"
#include "trainer/run/batch_plan.h"
#include "trainer/task/task.h"

namespace ddp::train {
namespace {

using Json = nlohmann::ordered_json;

struct Estimate {
  std::vector<ParameterPart> parameters;
  MemoryEstimate memory;
  std::string unit;  ///< "tokens", "lines"
  int64_t units_per_step = 0;
  std::optional<int64_t> steps_per_epoch;  ///< None without data.
  double flops_per_step = 0.0;
  std::string flops_formula;
};

/// What is trained, without a model, and where.
struct Job {
  const CostedTraining& training;
  ComputePlace place;
  int device_index = 0;

  const Config& config() const { return training.config; }
};

Estimate estimate(const Job& job) {
  const TaskCost& task = job.training.cost();
  const TrainerConfig& trainer = job.config().trainer;
  Estimate result;
  result.parameters = task.parameter_parts();
  result.memory = estimate_memory(job.config(), task, job.place, job.device_index);
  const int64_t copies = copies_of_model(job.config().distributed, job.place.world_size);
  const BatchPlan batches = plan_batches(trainer, static_cast<int>(copies), std::nullopt);
  const int64_t samples = batches.micro_batches * trainer.batch_size;
  result.unit = task.unit();
  result.units_per_step = samples * task.units_per_sample();
  if (job.training.task) result.steps_per_epoch = job.training.task->training().size() / samples;
  result.flops_per_step = static_cast<double>(result.units_per_step) * task.flops_per_unit();
  result.flops_formula = task.flops_formula();
  return result;
}

Json as_json(const Estimate& e) {
  Json memory;
  for (const MemoryItem& item : e.memory.items) memory[item.name] = item.bytes;
  Json parameters = {{"total", total_of(e.parameters)}};
  for (const ParameterPart& part : e.parameters) parameters[part.name] = part.count;
  Json json = {{"parameters", parameters},
               {"memory_per_rank_bytes", memory},
               {"device", e.memory.cuda ? "cuda" : "cpu"},
               {"needed_bytes", e.memory.needed_bytes()},
               {"available_bytes", e.memory.available_bytes},
               {"fits", e.memory.fits()},
               {e.unit + "_per_step", e.units_per_step}};
  if (e.steps_per_epoch) {
    json["steps_per_epoch"] = *e.steps_per_epoch;
    json[e.unit + "_per_epoch"] = e.units_per_step * *e.steps_per_epoch;
  }
  json["flops_per_step"] = e.flops_per_step;
  return json;
}

/// What to change, with numbers, when it does not fit.
std::string advice(const Job& job) {
  std::string text;
  for (const auto& [change, then] :
       memory_savings(job.config(), job.training.cost(), job.place, job.device_index)) {
    text += fmt::format("  {}: {}{}\n", change, in_bytes(then.needed_bytes()),
                        then.fits() ? ", which fits" : "");
  }
  return text.empty() ? "  take a smaller model\n" : text;
}

std::string in_short(int64_t value) { return short_number(static_cast<double>(value)); }

/// "2.72M: token embedding 8.32k, ..., head tied"
std::string parameter_text(const std::vector<ParameterPart>& parts) {
  std::string text = in_short(total_of(parts));
  std::string_view between = ": ";
  for (const auto& [name, count] : parts) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    text += fmt::format("{}{} {}", between, words, count == 0 ? "tied" : in_short(count));
    between = ", ";
  }
  return text;
}

std::string as_table(const Estimate& e) {
  std::string text = fmt::format("Parameters         {}\nMemory of a rank, at its largest moment\n",
                                 parameter_text(e.parameters));
  for (const MemoryItem& item : e.memory.items) {
    const std::string note = std::string(counts(item, e.memory.cuda) ? "" : " (of the CPU)") +
                             (item.main_rank_only ? " (rank 0 alone)" : "");
    text += fmt::format("  {:<16} {}{}\n", item.name, in_bytes(item.bytes), note);
  }
  text += fmt::format("Steps              {} {} each", in_short(e.units_per_step), e.unit);
  if (e.steps_per_epoch)
    text += fmt::format(", {} in an epoch of {} {}", *e.steps_per_epoch,
                        in_short(e.units_per_step * *e.steps_per_epoch), e.unit);
  text += "\n";
  if (e.steps_per_epoch == 0)
    text += "                   the data are too few for one step: training would refuse them\n";
  text += fmt::format("FLOPs per step     {:.3g} ({})\n", e.flops_per_step, e.flops_formula);
  text += fmt::format("Fits               {}: {} of the {} that {} free now\n",
                      e.memory.fits() ? "yes" : "no", in_bytes(e.memory.needed_bytes()),
                      in_bytes(e.memory.available_bytes),
                      e.memory.cuda ? "the GPU has" : "this machine has");
  return text;
}

}  // namespace

int run_estimate(const TrainerArgs& args) {
  CostedTraining training = costed_training(args);
  const Config& config = training.config;
  const DevicePlan plan = plan_device(config.trainer.device, config.distributed, DistEnv{});
  if (!plan.device.is_cuda()) settle_amp_here(training.config.trainer);
  const Job job{training,
                {plan.device.is_cuda(), args.estimate.world_size},
                plan.device.is_cuda() ? plan.device.index() : 0};
  training.cost().check_division(training.config);
  const Estimate result = estimate(job);
  if (args.estimate.json) {
    print(as_json(result).dump(2) + "\n");
    return launch::kExitDone;
  }
  if (!training.note.empty()) print(fmt::format("Vocabulary         {}\n", training.note));
  print(as_table(result));
  if (!result.memory.fits()) print("To make it fit:\n" + advice(job));
  return launch::kExitDone;
}

}  // namespace ddp::train
