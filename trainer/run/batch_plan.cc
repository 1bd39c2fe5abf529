#include "trainer/run/batch_plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trainer/metrics/text.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// The run before made its steps of the same micro-batches, and was not told how many of them.
bool same_micro_batches(const TrainerConfig& now, const SnapshotMeta& meta) {
  const auto config = nlohmann::json::parse(meta.config_json, nullptr, false);
  if (!config.is_object() || !config.contains("trainer_config")) return false;
  const auto& then = config["trainer_config"];
  return then.value("global_batch_size", nlohmann::json()).is_null() &&
         then.value("batch_size", int64_t{0}) == now.batch_size &&
         then.value("grad_accumulation_steps", int64_t{0}) == now.grad_accumulation_steps;
}

/// Copies of the model in the previous run.
int64_t copies_then(const SnapshotMeta& meta) {
  const auto config = nlohmann::json::parse(meta.config_json, nullptr, false);
  if (!config.is_object() || !config.contains("distributed_config")) return meta.world_size;
  const auto& then = config["distributed_config"];
  const auto ranks = then.value("pipeline", int64_t{1}) * then.value("tensor", int64_t{1});
  return meta.world_size / std::max<int64_t>(1, ranks);
}

}  // namespace

BatchPlan plan_batches(const TrainerConfig& config, int copies,
                       const std::optional<SnapshotMeta>& meta, bool divided) {
  const auto counted_copies = [divided](int64_t count) {
    return divided ? fmt::format("{} {} of the model", count, count == 1 ? "copy" : "copies")
                   : counted(count, "rank");
  };
  if (config.global_batch_size) {
    const int64_t micro_batches = *config.global_batch_size / config.batch_size;
    if (micro_batches >= copies) return {micro_batches, ""};
    throw UserError(fmt::format(
        "trainer_config.global_batch_size={} is {} micro-batches of trainer_config.batch_size={}, "
        "too few for {}; use a batch_size of {} or less",
        *config.global_batch_size, micro_batches, config.batch_size, counted_copies(copies),
        std::max<int64_t>(1, *config.global_batch_size / copies)));
  }
  const int64_t own = config.grad_accumulation_steps * copies;
  if (!meta || meta->micro_batches_per_step == own || !same_micro_batches(config, *meta))
    return {own, ""};
  const int64_t kept = meta->micro_batches_per_step;
  const int64_t samples = kept * config.batch_size;
  const int64_t then = copies_then(*meta);
  const std::string now = then == copies
                              ? counted_copies(copies)
                              : fmt::format("{} instead of {}", counted_copies(copies), then);
  if (kept >= copies) {
    return {kept, fmt::format("{}: the global batch stays {} samples, {} micro-batches dealt anew",
                              now, samples, kept)};
  }
  return {own, fmt::format("{}: the global batch grows from {} to {} samples; "
                           "set trainer_config.global_batch_size={} and a smaller batch_size to "
                           "keep it",
                           now, samples, own * config.batch_size, samples)};
}

}  // namespace ddp::train
