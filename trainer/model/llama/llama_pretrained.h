// Llama, Qwen2 and Qwen3 in transformers' format: the keys of config.json and the names of the
// weights. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/model/llama/llama_config.h"
#include "trainer/model/load/pretrained_layout.h"

namespace ddp::train {

inline constexpr const char* kLlamaType = "llama";

/// The values of model_type in config.json that are one of these.
std::vector<std::string_view> llama_model_types();

struct PretrainedLlama {
  LlamaShape shape;  ///< Without zeros.
  int64_t positions = 0;
  /// Settings that this trainer's model cannot represent: "mlp_bias is true".
  std::vector<std::string> unsupported;
};

/// `path`: a folder, or a snapshot of model=llama. Throws UserError: no such folder or file, not
/// JSON, another model.
PretrainedLlama read_pretrained_llama(const std::string& path);

/// The text of config.json, of the model type that has what `shape` has. Throws UserError if
/// transformers has none.
std::string llama_config_json(const LlamaShape& shape, int64_t vocab_size, int64_t positions,
                              std::optional<int32_t> end_of_text);

/// The layout of LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM and the models without a
/// head.
extern const PretrainedLayout kLlamaLayout;

}  // namespace ddp::train
