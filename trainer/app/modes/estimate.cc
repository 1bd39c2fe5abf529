// trainer estimate: what a training takes, before it runs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launcher/worker_contract.h"
#include "trainer/app/data_facts.h"
#include "trainer/app/memory_estimate.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/config/compose/load_config.h"
#include "trainer/metrics/model_flops.h"
#include "trainer/metrics/text.h"
#include "trainer/model/training_cost.h"
#include "trainer/parallel/dist_env.h"
#include "trainer/parallel/process_group.h"
#include "trainer/run/batch_plan.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Json = nlohmann::ordered_json;

struct Estimate {
  ParameterCounts parameters;
  MemoryEstimate memory;
  int64_t tokens_per_step = 0;
  int64_t steps_per_epoch = 0;
  double flops_per_step = 0.0;
};

/// Of these data and this many ranks.
struct Job {
  Config config;
  DataFacts data;
  ComputePlace place;
  int device_index = 0;

  MemoryModel memory_model() const {
    return [this](const Config& changed, const ComputePlace& where) {
      return memory_items(changed, data.vocab_size, where);
    };
  }
};

Job job_of(const Config& config, int64_t world_size) {
  const DevicePlan plan = plan_device(config, DistEnv{});
  return {config,
          read_data_facts(config),
          {plan.device.is_cuda(), world_size},
          plan.device.is_cuda() ? plan.device.index() : 0};
}

Estimate estimate(const Job& job) {
  const Config& config = job.config;
  Estimate result;
  result.parameters = parameter_counts(config.gpt, job.data.vocab_size, config.data.block_size);
  result.memory = estimate_memory(config, job.memory_model(), job.place, job.device_index);
  const BatchPlan batches =
      plan_batches(config.trainer, static_cast<int>(job.place.world_size), std::nullopt);
  const int64_t samples = batches.micro_batches * config.trainer.batch_size;
  result.tokens_per_step = samples * config.data.block_size;
  result.steps_per_epoch = job.data.samples / samples;
  result.flops_per_step =
      static_cast<double>(result.tokens_per_step) *
      flops_per_token({result.parameters.total() - result.parameters.position_embedding,
                       config.gpt.n_layer, config.gpt.n_embd, config.data.block_size});
  return result;
}

Json as_json(const Estimate& e) {
  Json memory;
  for (const MemoryItem& item : e.memory.items) memory[item.name] = item.bytes;
  return {{"parameters",
           {{"total", e.parameters.total()},
            {"token_embedding", e.parameters.token_embedding},
            {"position_embedding", e.parameters.position_embedding},
            {"blocks", e.parameters.blocks},
            {"final_norm", e.parameters.final_norm},
            {"head", e.parameters.head}}},
          {"memory_per_rank_bytes", memory},
          {"device", e.memory.cuda ? "cuda" : "cpu"},
          {"needed_bytes", e.memory.needed_bytes()},
          {"available_bytes", e.memory.available_bytes},
          {"fits", e.memory.fits()},
          {"tokens_per_step", e.tokens_per_step},
          {"steps_per_epoch", e.steps_per_epoch},
          {"tokens_per_epoch", e.tokens_per_step * e.steps_per_epoch},
          {"flops_per_step", e.flops_per_step}};
}

/// What to change, with numbers, when it does not fit.
std::string advice(const Job& job) {
  std::string text;
  for (const auto& [change, then] :
       memory_savings(job.config, job.memory_model(), job.place, job.device_index)) {
    text += fmt::format("  {}: {}{}\n", change, in_bytes(then.needed_bytes()),
                        then.fits() ? ", which fits" : "");
  }
  return text.empty() ? "  take a smaller model\n" : text;
}

std::string as_table(const Estimate& e) {
  const auto number = [](int64_t value) { return short_number(static_cast<double>(value)); };
  std::string text = fmt::format(
      "Parameters         {}: token embedding {}, position embedding {}, blocks {}, "
      "final norm {}, head {}\nMemory of a rank, at its largest moment\n",
      number(e.parameters.total()), number(e.parameters.token_embedding),
      number(e.parameters.position_embedding), number(e.parameters.blocks),
      number(e.parameters.final_norm), e.parameters.head == 0 ? "tied" : number(e.parameters.head));
  for (const MemoryItem& item : e.memory.items) {
    const std::string note = std::string(counts(item, e.memory.cuda) ? "" : " (of the CPU)") +
                             (item.main_rank_only ? " (rank 0 alone)" : "");
    text += fmt::format("  {:<16} {}{}\n", item.name, in_bytes(item.bytes), note);
  }
  text += fmt::format("Steps              {} tokens each, {} in an epoch of {} tokens\n",
                      number(e.tokens_per_step), e.steps_per_epoch,
                      number(e.tokens_per_step * e.steps_per_epoch));
  if (e.steps_per_epoch == 0)
    text += "                   the text is too short for one step: training would refuse it\n";
  text += fmt::format("FLOPs per step     {:.3g} (6N + 12LHQT per token)\n", e.flops_per_step);
  text += fmt::format("Fits               {}: {} of the {} that {} free now\n",
                      e.memory.fits() ? "yes" : "no", in_bytes(e.memory.needed_bytes()),
                      in_bytes(e.memory.available_bytes),
                      e.memory.cuda ? "the GPU has" : "this machine has");
  return text;
}

}  // namespace

int run_estimate(const TrainerArgs& args) {
  const Config config = load_config(args.config, args.overrides);
  if (config.task != TaskKind::kCausalLm) {
    throw UserError(fmt::format("task: {}: trainer estimate knows {} alone", task_name(config.task),
                                task_name(TaskKind::kCausalLm)));
  }
  const Job job = job_of(config, args.estimate.world_size);
  const Estimate result = estimate(job);
  if (args.estimate.json) {
    print(as_json(result).dump(2) + "\n");
    return launch::kExitDone;
  }
  print(as_table(result));
  if (!result.memory.fits()) print("To make it fit:\n" + advice(job));
  return launch::kExitDone;
}

}  // namespace ddp::train
