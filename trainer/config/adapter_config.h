// lora, prompt_tuning and quantize: a frozen pretrained model and what is trained with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/value_types.h"

namespace ddp::train {

/// Low-rank adapters on a frozen pretrained model.
struct LoraConfig {
  int64_t rank = 0;                  ///< Rank of the adapters' matrices; 0: no adapters.
  double alpha = 16.0;               ///< The adapters' outputs are scaled by alpha / rank.
  bool use_rslora = false;           ///< By alpha / sqrt(rank) instead.
  double dropout = 0.0;              ///< On the adapters' inputs.
  std::vector<std::string> targets;  ///< Shell patterns of linear layers; the model's default.
  std::string init_from{};           ///< Folder of peft to continue from. Absolute after loading.

  bool enabled() const { return rank > 0; }
};

/// Virtual tokens in front of each sequence of a frozen pretrained model.
struct PromptConfig {
  int64_t tokens = 0;     ///< 0: none.
  std::string text;       ///< Whose tokens' embeddings they start as; empty: the vocabulary's.
  std::string init_from;  ///< Folder of peft's prompt to start from. Absolute after loading.

  bool enabled() const { return tokens > 0; }
};

/// How the frozen weights of linear layers are held.
enum class BaseFormat { kNone, kInt8, kNf4 };
inline Names names_of(BaseFormat) { return {"none", "int8", "nf4"}; }

struct QuantizeConfig {
  BaseFormat base = BaseFormat::kNone;

  bool enabled() const { return base != BaseFormat::kNone; }
};

}  // namespace ddp::train
