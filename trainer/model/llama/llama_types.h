// The models that a LlamaConfig can describe, a row each: what transformers calls them, and what
// its configuration class defaults to.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/model/llama/llama_config.h"

namespace ddp::train {

/// What files call the parts of a feed-forward layer, and of each expert.
struct FeedForwardNames {
  const char* layer = "mlp";
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
};

struct LlamaType {
  std::string_view model_type;  ///< In config.json.
  const char* class_name;       ///< The model with a head.
  int64_t positions;            ///< max_position_embeddings where config.json has none.
  /// Values where config.json has none; 0: as LlamaShape says. Family, qkv_bias and qk_norm are
  /// those of every such model.
  LlamaShape defaults{};
  // What its class reads and other classes do not.
  bool has_window = false;          ///< sliding_window
  bool has_partial_rotary = false;  ///< partial_rotary_factor
  bool scales_rope = true;          ///< The scalings of RopeScaling.
  bool has_softcaps = false;        ///< What Gemma's classes read.
  bool has_local_rope = false;      ///< rope_local_base_freq
  // What a family computes.
  bool is_gemma = false;  ///< Norms by 1 + weight, GELU for SiLU, embeddings times sqrt(n_embd).
  bool has_post_norms = false;         ///< Norms of what attention and feed-forward layer add, too.
  bool rounds_router_weights = false;  ///< To the type of the router's logits, under autocast.
  // What its files contain.
  const char* inner_key = "intermediate_size";
  FeedForwardNames names{};
};

const std::vector<LlamaType>& llama_types();
/// Null if there is none.
const LlamaType* find_llama_type(std::string_view model_type);
/// The type whose blocks `shape` has.
const LlamaType& family_of(const LlamaShape& shape);
/// The type of `shape` in transformers, by its family and the parts of its layers.
const LlamaType& llama_type_of(const LlamaShape& shape);

}  // namespace ddp::train
