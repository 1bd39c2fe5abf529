#include "trainer/model/cost/loss_cost.h"

#include <algorithm>
#include <cmath>

#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/lora.h"
#include "trainer/model/model_division.h"

namespace ddp::train {
namespace {

constexpr double kWideBytes = 4.0;

double columns_of(const LossPart& part) { return part.sizes.vocab_size + part.padding; }

/// The output layer's weight followed by rows of zeros.
double padded_table_bytes(const LossPart& part) {
  return part.padding > 0 ? columns_of(part) * part.sizes.width * part.sizes.compute : 0.0;
}

/// With all columns of logits, as many at a time.
LossSizes padded(const LossPart& part) {
  LossSizes sizes = part.sizes;
  sizes.chunk_size = {false, rows_of_chunk(part.sizes)};
  sizes.vocab_size = columns_of(part);
  return sizes;
}

/// Logits that become their gradient, and the head's gradient; or an evaluation, whose logits are
/// float32.
double bytes_of_kernel(const LossPart& part) {
  const LossSizes& s = part.sizes;
  const double table = s.vocab_size * s.width;
  const double gradient = part.frozen ? 0.0 : table * kWideBytes;
  const double columns = columns_of(part);
  const double logits = s.tokens * columns * s.compute;
  const double chunk = s.chunk_size.automatic ? kAutomaticLogitBytes * columns / s.vocab_size
                                              : s.chunk_size.value * columns * s.compute;
  const double in_training = (chunk == 0 ? logits : std::min(logits, chunk)) +
                             s.finished * gradient + part.padding * s.width * s.compute;
  // Logits, their float32 copy and its logarithms; the table in 16 bits, without and with padding.
  const double rows = std::min(kAutomaticLogitBytes / kWideBytes / s.vocab_size, s.tokens);
  const double in_evaluation = rows * (columns * s.compute + 2 * s.vocab_size * kWideBytes) +
                               table * s.compute + padded_table_bytes(part);
  const double before_blocks =
      part.recomputed > 0 ? std::max(gradient, in_training - part.recomputed) : in_training;
  return std::max(before_blocks, in_evaluation - part.activations);
}

/// By torch's operations. On a GPU a chunk's sum of exponentials is float32 next to its logits,
/// whose copy in 16 bits is freed by then.
double bytes_of_operations(const LossPart& part, const ComputePlace& place) {
  const LossSizes s = padded(part);
  // The gradient of the table has no padding, where a chunk is added to it.
  const double missing = in_one_piece(s) && !s.divided ? 0.0
                         : part.frozen                 ? s.vocab_size
                                                       : part.padding;
  const double bytes = logit_bytes(s) - s.finished * missing * s.width * kWideBytes;
  if (s.divided) return bytes;
  if (!place.cuda) return bytes + padded_table_bytes(part);
  const double copy = s.compute < kWideBytes ? s.compute : 0.0;
  const double exponentials =
      in_one_piece(s) ? 0.0 : rows_of_chunk(s) * columns_of(part) * (kWideBytes - copy);
  const double all = bytes + padded_table_bytes(part) + exponentials;
  return part.recomputed > 0 ? std::max(bytes, all - part.recomputed) : all;
}

}  // namespace

double loss_bytes(const Config& config, const ComputePlace& place, const LossPart& part) {
  const bool by_kernel = by_gpu_kernels(config, place) && config.distributed.tensor == 1 &&
                         config.trainer.label_smoothing == 0.0;
  return by_kernel ? bytes_of_kernel(part) : bytes_of_operations(part, place);
}

bool by_gpu_kernels(const Config& config, const ComputePlace& place) {
  return place.cuda && config.trainer.use_amp && config.trainer.amp_dtype == AmpDtype::kBFloat16 &&
         config.trainer.fused_gpu_kernels;
}

double padding_of(const AutoNumber& multiple, double vocab_size, const ComputePlace& place) {
  constexpr double kOfGpu = 64;
  const double automatic = place.cuda ? kOfGpu : 1;
  const double rows = multiple.automatic ? automatic : std::max(1.0, multiple.value);
  return std::ceil(vocab_size / rows) * rows - vocab_size;
}

double weight_copy_bytes(const Config& config, const std::vector<ParameterShape>& own,
                         const ComputePlace& place) {
  const bool divided = config.distributed.strategy == Strategy::kZero3 && place.world_size > 1;
  if (!place.cuda || !config.trainer.use_amp || divided) return 0.0;
  double elements = 0.0;
  for (const ParameterShape& parameter : own) {
    if (parameter.sizes.size() > 1 && quantized_bytes(parameter, config.quantize.base) == 0)
      elements += static_cast<double>(parameter.count());
  }
  return elements * kWideBytes / 2;
}

std::vector<MemoryItem> decoder_items(const Config& config, const ComputePlace& place,
                                      const WeightsLayout& layout,
                                      const DecoderActivations& activations, LossSizes loss,
                                      const AutoNumber& padding) {
  const auto parameters = shapes_of(layout);
  const StageLoad load = stage_load(config, layout, place);
  loss.divided = config.distributed.tensor > 1;
  loss.finished = load.finished;
  const double recomputed = activations.checkpointed ? activations.of_block : 0.0;
  const double columns = padding_of(padding, loss.vocab_size, place);
  const double logits =
      load.last ? loss_bytes(config, place,
                             {loss, columns, activations.kept, recomputed, config.adapted()})
                : 0.0;
  // The logits are freed before the blocks are computed backward.
  const double workspace = std::max(0.0, activations.workspace - logits);
  const auto layers = static_cast<double>(stage_costs(layout, config.data.block_size).layers);
  const double adapters = adapter_activation_bytes(config, parameters, place) *
                          (activations.checkpointed ? 1.0 : load.kept_layers) / layers;
  // Measured in a CPU's heap (scripts/checks/check_estimate.py): what adapters and products with
  // codes free leaves holes between the activations that stay.
  const double holes = config.quantize.enabled() && !place.cuda ? 0.4 * activations.kept : 0.0;
  const auto own = shapes_of_rank(parameters, layout, config, place.stage);
  const auto bytes = [](double x) { return static_cast<int64_t>(std::llround(x)); };
  return rank_items(config, parameters, place, layout,
                    {{"activations", bytes(activations.kept + workspace + adapters + holes)},
                     {"logits", bytes(logits)},
                     {"weight_copies", bytes(weight_copy_bytes(config, own, place))}});
}

}  // namespace ddp::train
