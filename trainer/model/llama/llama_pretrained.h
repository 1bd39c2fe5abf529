// The models of llama_types.h in transformers' format: the keys of config.json and the names of the
// weights. Does not use LibTorch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/model/llama/llama_config.h"
#include "trainer/model/load/pretrained_layout.h"

namespace ddp::train {

/// The values of rope_scaling.rope_type that a Llama computes.
inline constexpr std::string_view kRopeTypes[] = {"default", "linear", "llama3", "yarn", "dynamic"};
inline bool is_rope_type(std::string_view name) {
  return std::find(std::begin(kRopeTypes), std::end(kRopeTypes), name) != std::end(kRopeTypes);
}

struct PretrainedLlama {
  LlamaShape shape;  ///< Without zeros.
  int64_t positions = 0;
  /// Settings that this trainer's model cannot represent: "mlp_bias is true".
  std::vector<std::string> unsupported;
  std::string head_note{};  ///< See own_head_note().
};

/// `path`: a folder, or a snapshot of model=llama. Throws UserError: no such folder or file, not
/// JSON, another model.
PretrainedLlama read_pretrained_llama(const std::string& path);

/// The text of config.json of the model type that `shape` has. Throws UserError if transformers
/// computes something else by it.
std::string llama_config_json(const LlamaShape& shape, int64_t vocab_size, int64_t positions,
                              std::optional<int32_t> end_of_text);

/// The layout of the models with a head and without.
extern const PretrainedLayout kLlamaLayout;

}  // namespace ddp::train
