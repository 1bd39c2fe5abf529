#include "trainer/run/batch_plan.h"

#include <fmt/format.h>

#include "trainer/config/config.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/metrics/text.h"
#include "trainer/model/model_division.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// The run before made its steps of the same micro-batches, and was not told how many of them.
bool same_micro_batches(const TrainerConfig& now, const TrainerConfig& then) {
  return !then.global_batch_size && then.batch_size == now.batch_size &&
         then.grad_accumulation_steps == now.grad_accumulation_steps;
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
  if (!meta || meta->micro_batches_per_step == own) return {own, ""};
  const Config before = config_from_json(meta->config_json);
  if (!same_micro_batches(config, before.trainer)) return {own, ""};
  const int64_t kept = meta->micro_batches_per_step;
  const int64_t samples = kept * config.batch_size;
  const int64_t then = copies_of_model(before.distributed, meta->world_size);
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
