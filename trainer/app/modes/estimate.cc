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

/// What a training takes on one of its ranks.
struct Estimate {
  const CostedTraining& training;
  ComputePlace place;
  int device_index = 0;
  MemoryEstimate memory;
  int64_t units_per_step = 0;
  std::optional<int64_t> steps_per_epoch;  ///< None without data.

  std::string unit() const { return std::string(training.cost->unit()); }  ///< "tokens", "lines"
  double flops_per_step() const {
    return static_cast<double>(units_per_step) * training.cost->flops_per_unit();
  }
};

Estimate estimate(const CostedTraining& training, const torch::Device& device, int64_t ranks) {
  const Config& config = training.config;
  const TaskCost& task = *training.cost;
  Estimate result{training, {device.is_cuda(), ranks}, device.is_cuda() ? device.index() : 0, {}, 0,
                  {}};
  task.check_division(config);
  result.memory = estimate_memory(config, task, result.place, result.device_index);
  const int64_t copies = copies_of_model(config.distributed, ranks);
  const BatchPlan batches = plan_batches(config.trainer, static_cast<int>(copies), std::nullopt);
  const int64_t samples = batches.micro_batches * config.trainer.batch_size;
  result.units_per_step = samples * task.units_per_sample();
  if (training.samples) result.steps_per_epoch = *training.samples / samples;
  return result;
}

Json as_json(const Estimate& e) {
  Json memory;
  for (const MemoryItem& item : e.memory.items) memory[item.name] = item.bytes;
  const auto parts = e.training.cost->parameter_parts();
  Json parameters = {{"total", total_of(parts)}};
  for (const ParameterPart& part : parts) parameters[part.name] = part.count;
  Json json = {{"parameters", parameters},
               {"memory_per_rank_bytes", memory},
               {"device", e.memory.cuda ? "cuda" : "cpu"},
               {"needed_bytes", e.memory.needed_bytes()},
               {"available_bytes", e.memory.available_bytes},
               {"fits", e.memory.fits()},
               {e.unit() + "_per_step", e.units_per_step}};
  if (e.steps_per_epoch) {
    json["steps_per_epoch"] = *e.steps_per_epoch;
    json[e.unit() + "_per_epoch"] = e.units_per_step * *e.steps_per_epoch;
  }
  json["flops_per_step"] = e.flops_per_step();
  return json;
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
                                 parameter_text(e.training.cost->parameter_parts()));
  for (const MemoryItem& item : e.memory.items) {
    std::string note = std::string(counts(item, e.memory.cuda) ? "" : " (of the CPU)") +
                       (item.main_rank_only ? " (rank 0 alone)" : "");
    if (item.reused > 0)
      note += fmt::format(" ({} in memory that activations leave)", in_bytes(item.reused));
    text += fmt::format("  {:<16} {}{}\n", item.name, in_bytes(item.bytes), note);
  }
  text += fmt::format("Steps              {} {} each", in_short(e.units_per_step), e.unit());
  if (e.steps_per_epoch)
    text += fmt::format(", {} in an epoch of {} {}", *e.steps_per_epoch,
                        in_short(e.units_per_step * *e.steps_per_epoch), e.unit());
  text += "\n";
  if (e.steps_per_epoch == 0)
    text += "                   the data are too few for one step: training would refuse them\n";
  text += fmt::format("FLOPs per step     {:.3g} ({})\n", e.flops_per_step(),
                      e.training.cost->flops_formula());
  const std::string all = fmt::format(" on each of {} ranks", e.memory.ranks_sharing);
  text += fmt::format(
      "Fits               {}: {}{} of the {} that {} free now\n", e.memory.fits() ? "yes" : "no",
      in_bytes(e.memory.device_bytes), e.memory.ranks_sharing > 1 ? all + "," : "",
      in_bytes(e.memory.available_bytes), e.memory.cuda ? "the GPU has" : "this machine has");
  return text;
}

}  // namespace

int run_estimate(const TrainerArgs& args) {
  CostedTraining training = costed_training(args);
  const torch::Device device =
      plan_device(training.config.trainer.device, training.config.distributed, DistEnv{}).device;
  if (!device.is_cuda()) settle_amp_here(training.config.trainer);
  const Estimate result = estimate(training, device, args.estimate.world_size);
  if (args.estimate.json) {
    print(as_json(result).dump(2) + "\n");
    return launch::kExitDone;
  }
  if (!training.note.empty()) print(fmt::format("Vocabulary         {}\n", training.note));
  print(as_table(result));
  if (!result.memory.fits()) {
    print(fmt::format("To make it fit, {}\n", memory_advice(training.config, *training.cost,
                                                            result.place, result.device_index)));
  }
  return launch::kExitDone;
}

}  // namespace ddp::train
