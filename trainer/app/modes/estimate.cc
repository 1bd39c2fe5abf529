// trainer estimate: what a training takes, before it runs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launcher/worker_contract.h"
#include "trainer/app/data_facts.h"
#include "trainer/app/machine_memory.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/config/compose/load_config.h"
#include "trainer/metrics/model_flops.h"
#include "trainer/metrics/text.h"
#include "trainer/model/training_cost.h"
#include "trainer/parallel/cuda_module.h"
#include "trainer/parallel/dist_env.h"
#include "trainer/parallel/process_group.h"
#include "trainer/run/batch_plan.h"

namespace ddp::train {
namespace {

using Json = nlohmann::ordered_json;

struct Estimate {
  ParameterCounts parameters;
  std::vector<MemoryItem> memory;
  int64_t device_bytes = 0;  ///< Of the rank that needs most, in the memory that `available` is of.
  int64_t available_bytes = 0;
  int64_t ranks_sharing = 1;  ///< That memory.
  bool cuda = false;
  int64_t tokens_per_step = 0;
  int64_t steps_per_epoch = 0;
  double flops_per_step = 0.0;

  bool fits() const { return device_bytes * ranks_sharing <= available_bytes; }
};

/// The CPU's memory holds everything, a GPU's only what is computed with.
bool counts(const MemoryItem& item, bool cuda) { return !cuda || item.kind == MemoryKind::kDevice; }

std::vector<MemoryItem> all_memory(const Config& config, const DataFacts& data,
                                   const ComputePlace& place) {
  auto items = memory_items(config, data.vocab_size, place);
  items.push_back({"program", program_bytes(place.cuda), MemoryKind::kHost});
  return items;
}

Estimate estimate(const Config& config, const DataFacts& data, int64_t world_size) {
  const DevicePlan plan = plan_device(config, DistEnv{});
  const ComputePlace place{plan.device.is_cuda(), world_size};
  Estimate result;
  result.cuda = place.cuda;
  result.parameters = parameter_counts(config.gpt, data.vocab_size, config.data.block_size);
  result.memory = all_memory(config, data, place);
  for (const MemoryItem& item : result.memory)
    result.device_bytes += counts(item, place.cuda) ? item.bytes : 0;
  result.available_bytes = place.cuda ? loaded_cuda_module()->free_memory_bytes(plan.device.index())
                                      : available_memory_bytes();
  result.ranks_sharing = place.cuda ? 1 : world_size;
  const BatchPlan batches =
      plan_batches(config.trainer, static_cast<int>(world_size), std::nullopt);
  const int64_t samples = batches.micro_batches * config.trainer.batch_size;
  result.tokens_per_step = samples * config.data.block_size;
  result.steps_per_epoch = data.samples / samples;
  result.flops_per_step =
      static_cast<double>(result.tokens_per_step) *
      flops_per_token({result.parameters.total() - result.parameters.position_embedding,
                       config.gpt.n_layer, config.gpt.n_embd, config.data.block_size});
  return result;
}

Json as_json(const Estimate& e) {
  Json memory;
  for (const MemoryItem& item : e.memory) memory[item.name] = item.bytes;
  return {{"parameters",
           {{"total", e.parameters.total()},
            {"token_embedding", e.parameters.token_embedding},
            {"position_embedding", e.parameters.position_embedding},
            {"blocks", e.parameters.blocks},
            {"final_norm", e.parameters.final_norm},
            {"head", e.parameters.head}}},
          {"memory_per_rank_bytes", memory},
          {"device", e.cuda ? "cuda" : "cpu"},
          {"needed_bytes", e.device_bytes * e.ranks_sharing},
          {"available_bytes", e.available_bytes},
          {"fits", e.fits()},
          {"tokens_per_step", e.tokens_per_step},
          {"steps_per_epoch", e.steps_per_epoch},
          {"tokens_per_epoch", e.tokens_per_step * e.steps_per_epoch},
          {"flops_per_step", e.flops_per_step}};
}

std::string in_bytes(int64_t bytes) { return short_number(static_cast<double>(bytes)) + "B"; }

/// What to change, with numbers, when it does not fit.
std::string advice(const Config& config, const DataFacts& data, const Estimate& now,
                   int64_t world_size) {
  Config changed = config;
  changed.gpt.activation_checkpointing = true;
  std::string text;
  const auto suggest = [&](const std::string& key) {
    const Estimate then = estimate(changed, data, world_size);
    if (then.device_bytes < now.device_bytes) {
      text += fmt::format("  {}: {}{}\n", key, in_bytes(then.device_bytes * then.ranks_sharing),
                          then.fits() ? ", which fits" : "");
    }
  };
  suggest("gpt_config.activation_checkpointing=true");
  changed = config;
  while (changed.trainer.batch_size > 1) {
    changed.trainer.batch_size = (changed.trainer.batch_size + 1) / 2;
    if (estimate(changed, data, world_size).fits()) break;
  }
  changed.trainer.global_batch_size.reset();
  suggest(fmt::format("trainer_config.batch_size={} with more grad_accumulation_steps",
                      changed.trainer.batch_size));
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
  for (const MemoryItem& item : e.memory) {
    const std::string note = std::string(counts(item, e.cuda) ? "" : " (of the CPU)") +
                             (item.main_rank_only ? " (rank 0 alone)" : "");
    text += fmt::format("  {:<16} {}{}\n", item.name, in_bytes(item.bytes), note);
  }
  text += fmt::format("Steps              {} tokens each, {} in an epoch of {} tokens\n",
                      number(e.tokens_per_step), e.steps_per_epoch,
                      number(e.tokens_per_step * e.steps_per_epoch));
  text += fmt::format("FLOPs per step     {:.3g} (6N + 12LHQT per token)\n", e.flops_per_step);
  text += fmt::format("Fits               {}: {} of the {} that {} free now\n",
                      e.fits() ? "yes" : "no", in_bytes(e.device_bytes * e.ranks_sharing),
                      in_bytes(e.available_bytes), e.cuda ? "the GPU has" : "this machine has");
  return text;
}

}  // namespace

int run_estimate(const TrainerArgs& args) {
  const Config config = load_config(args.config, args.overrides);
  const DataFacts data = read_data_facts(config);
  const Estimate result = estimate(config, data, args.estimate.world_size);
  if (args.estimate.json) {
    print(as_json(result).dump(2) + "\n");
    return launch::kExitDone;
  }
  print(as_table(result));
  if (!result.fits()) {
    print("To make it fit:\n" + advice(config, data, result, args.estimate.world_size));
  }
  return launch::kExitDone;
}

}  // namespace ddp::train
