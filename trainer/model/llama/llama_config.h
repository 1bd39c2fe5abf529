// llama_config: one section for Llama 2 and 3, TinyLlama, SmolLM2, Qwen2, Qwen3 (dense),
// Mistral, Phi-3, Gemma 2, Gemma 3 (text), Mixtral and Qwen3-MoE.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/keys/config_checks.h"
#include "trainer/config/value_types.h"

namespace ddp::train {

struct Config;

/// Scaling of rotary embeddings to contexts longer than those of pretraining; names as in
/// rope_scaling of transformers' config.json.
struct RopeScaling {
  std::string rope_type = "default";  ///< default: not at all; linear; llama3; yarn; dynamic.
  double factor = 1.0;
  double low_freq_factor = 1.0;  ///< llama3, likewise the next one.
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 8192;  ///< llama3, yarn and dynamic.
  double attention_factor = 0.0;                    ///< yarn; 0: 0.1 ln(factor) + 1.
  double beta_fast = 32.0;                          ///< yarn, likewise the next one.
  double beta_slow = 1.0;

  bool operator==(const RopeScaling&) const = default;
};

/// The values fixed by a weight file and its config.json. 0: derived from the others.
struct LlamaShape {
  int64_t n_layer = 0;
  int64_t n_head = 0;
  int64_t n_kv_head = 0;  ///< Heads of keys and values, each for n_head / n_kv_head query heads.
  int64_t n_embd = 0;
  int64_t head_dim = 0;
  int64_t intermediate = 0;  ///< Inner width of the feed-forward layers, of each expert.
  double rope_theta = 10000.0;
  RopeScaling rope_scaling{};
  double norm_eps = 1e-5;
  bool tie_weights = false;  ///< lm_head shares its matrix with the token embedding.
  bool qkv_bias = false;     ///< In the query, key and value projections: Qwen2.
  bool qk_norm = false;      ///< RMSNorm of each query and key head: Qwen3.
  std::string family{};  ///< The LlamaType whose blocks it has; empty: llama, which is Qwen's, too.
  double partial_rotary_factor = 1.0;  ///< Share of each head that turns with its position.
  int64_t sliding_window = 0;          ///< Tokens that each token sees, itself included; 0: all.
  int64_t full_attention_every = 0;    ///< Every such layer sees all tokens nevertheless; 0: none.
  double rope_local_base_freq = 0.0;  ///< rope_theta, unscaled, where there is a window; 0: as all.
  double query_pre_attn_scalar = 0.0;    ///< Scores are divided by its root; 0: head_dim.
  double attn_logit_softcapping = 0.0;   ///< Scores are bounded by it; 0: not.
  double final_logit_softcapping = 0.0;  ///< So are logits.
  int64_t n_expert = 0;                  ///< In each block; 0: one dense feed-forward layer.
  int64_t n_expert_per_token = 0;        ///< Those that a token goes through.
  bool norm_topk_prob = false;           ///< Their weights are scaled to sum to 1.
  /// Factor of the load-balancing loss in training: no part of what the model computes.
  double router_aux_loss_coef = 0.001;
};

struct LlamaConfig : LlamaShape {
  std::string model_type;  ///< Preset name, empty when the sizes are given instead.
  std::string init_from;   ///< Folder or snapshot to start from. Absolute after loading.
  bool activation_checkpointing = false;
  AutoNumber loss_chunk_size;             ///< Rows of logits at a time in the loss; 0: all.
  AutoNumber pad_vocab_to_multiple_of{};  ///< In the logits of the loss; 0: none.
};

struct LlamaPreset : LlamaShape {
  LlamaPreset(std::string_view its_name, LlamaShape shape)
      : LlamaShape(std::move(shape)), name(its_name) {}
  std::string_view name;
};

/// The presets of llama_config.model_type.
const std::vector<LlamaPreset>& llama_presets();
/// vocab_size in the config.json published with the weights of a preset; 0 if there is
/// none.
int64_t published_vocabulary(std::string_view model_type);

/// The section of `config`. Throws std::out_of_range before add_model_keys().
LlamaConfig& llama_of(Config& config);
const LlamaConfig& llama_of(const Config& config);

/// The tokens that each token sees in that layer; 0: all.
int64_t window_of(const LlamaShape& shape, int64_t layer);
/// How many numbers of each head turn with its position.
int64_t rotary_width(const LlamaShape& shape);

/// Adds the section and its keys.
void add_llama_keys();

/// Fills in what follows from model_type, init_from or the other sizes. Throws UserError if they do
/// not fit each other or the pretrained model.
void complete_llama(LlamaConfig& llama, const Given& given);

}  // namespace ddp::train
