// Derives parameters and the memory of training on ranks that divide a model from the list of its
// weights. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/model/cost/training_cost.h"
#include "trainer/model/load/weights_layout.h"

namespace ddp::train {

/// In the order of CausalModel::model_parameters().
std::vector<ParameterShape> shapes_of(const WeightsLayout& layout);
/// Parameters of embeddings, blocks, final norm and head.
std::vector<ParameterPart> parts_of(const WeightsLayout& layout);

/// As memory_items(), for the first rank of place.stage; that of stage 0 writes snapshots of one
/// file. `layout`: how ranks divide the parameters.
std::vector<MemoryItem> rank_items(const Config& config,
                                   const std::vector<ParameterShape>& parameters,
                                   const ComputePlace& place, const WeightsLayout& layout,
                                   const std::vector<MemoryItem>& of_model);

/// Returns the shapes of a rank's parts of the parameters in `stage`; {0} for other stages'.
std::vector<ParameterShape> shapes_of_rank(const std::vector<ParameterShape>& parameters,
                                           const WeightsLayout& layout, const Config& config,
                                           int64_t stage);

/// Maximum size of a chunk's logits with `loss_chunk_size: auto`, bytes.
inline constexpr int64_t kAutomaticLogitBytes = int64_t{256} << 20U;

/// Number of tokens per chunk of the loss; 0: all in one piece, however many.
double rows_of_chunk(const LossSizes& sizes);
bool in_one_piece(const LossSizes& sizes);

/// A pipeline's messages: the output being sent, and an input or gradient that has arrived early.
/// `row`: elements of a hidden state.
inline double message_bytes(double row) {
  constexpr double kFloatBytes = 4.0;
  return 2 * kFloatBytes * row;
}

}  // namespace ddp::train
