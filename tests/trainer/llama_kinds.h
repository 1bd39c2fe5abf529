// Tiny models of each kind in the Llama family.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/llama/llama_config.h"

namespace ddp::train::test {

struct LlamaKind {
  std::string name;
  LlamaShape shape;
};

/// Those that interop_peer.py makes in transformers, by the same names.
inline std::vector<LlamaKind> llama_kinds() {
  const LlamaShape base{
      .n_layer = 2, .n_head = 4, .n_kv_head = 4, .n_embd = 64, .head_dim = 16, .intermediate = 96};
  std::vector<LlamaKind> kinds;
  const auto add = [&](const std::string& name) -> LlamaShape& {
    return kinds.emplace_back(LlamaKind{name, base}).shape;
  };
  add("llama2");
  LlamaShape& llama3 = add("llama3");
  llama3.n_kv_head = 2;
  llama3.rope_theta = 500.0;
  llama3.rope_scaling = {.rope_type = "llama3",
                         .factor = 8.0,
                         .low_freq_factor = 1.0,
                         .high_freq_factor = 4.0,
                         .original_max_position_embeddings = 32};
  LlamaShape& linear = add("linear");
  linear.rope_scaling = {.rope_type = "linear", .factor = 2.5};
  LlamaShape& smollm2 = add("smollm2");
  smollm2.n_kv_head = 1;
  smollm2.rope_theta = 1e5;
  smollm2.tie_weights = true;
  LlamaShape& qwen2 = add("qwen2");
  qwen2.n_kv_head = 2;
  qwen2.norm_eps = 1e-6;
  qwen2.tie_weights = true;
  qwen2.qkv_bias = true;
  LlamaShape& qwen3 = add("qwen3");
  qwen3.n_kv_head = 2;
  qwen3.head_dim = 32;
  qwen3.norm_eps = 1e-6;
  qwen3.qk_norm = true;
  LlamaShape& mistral = add("mistral");
  mistral.family = "mistral";
  mistral.n_kv_head = 2;
  mistral.norm_eps = 1e-6;
  mistral.sliding_window = 9;
  LlamaShape& phi3 = add("phi3");
  phi3.family = "phi3";
  phi3.n_kv_head = 2;
  phi3.partial_rotary_factor = 0.75;
  phi3.sliding_window = 20;
  LlamaShape& gemma2 = add("gemma2");
  gemma2.n_layer = 3;
  gemma2.n_kv_head = 2;
  gemma2.norm_eps = 1e-6;
  gemma2.tie_weights = true;
  gemma2.family = "gemma2";
  gemma2.sliding_window = 9;
  gemma2.full_attention_every = 2;
  gemma2.query_pre_attn_scalar = 24;
  gemma2.attn_logit_softcapping = 2;
  gemma2.final_logit_softcapping = 3;
  LlamaShape gemma3 = gemma2;
  gemma3.family = "gemma3_text";
  gemma3.qk_norm = true;
  gemma3.rope_theta = 1e6;
  gemma3.rope_scaling = {.rope_type = "linear", .factor = 4};
  gemma3.rope_local_base_freq = 500;
  gemma3.attn_logit_softcapping = gemma3.final_logit_softcapping = 0;
  add("gemma3_text") = gemma3;
  LlamaShape& yarn = add("yarn");
  yarn.rope_scaling = {.rope_type = "yarn", .factor = 4.0, .original_max_position_embeddings = 16};
  LlamaShape& mixtral = add("mixtral");
  mixtral.family = "mixtral";
  mixtral.n_kv_head = 2;
  mixtral.rope_theta = 1e6;
  mixtral.n_expert = 4;
  mixtral.n_expert_per_token = 2;
  mixtral.norm_topk_prob = true;
  mixtral.router_aux_loss_coef = 0.25;
  LlamaShape& qwen3_moe = add("qwen3_moe");
  qwen3_moe.n_kv_head = 2;
  qwen3_moe.head_dim = 32;
  qwen3_moe.norm_eps = 1e-6;
  qwen3_moe.qk_norm = true;
  qwen3_moe.family = "qwen3_moe";
  qwen3_moe.intermediate = 48;
  qwen3_moe.n_expert = 8;
  qwen3_moe.n_expert_per_token = 3;
  qwen3_moe.router_aux_loss_coef = 0.25;
  return kinds;
}

/// A text that was read token by token has other keys than one that was read in one pass.
inline LlamaKind dynamic_llama() {
  LlamaKind kind = llama_kinds().front();
  kind.name = "dynamic";
  kind.shape.rope_scaling = {
      .rope_type = "dynamic", .factor = 4.0, .original_max_position_embeddings = 40};
  return kind;
}

inline LlamaShape llama_kind(const std::string& name) {
  for (const LlamaKind& kind : llama_kinds())
    if (kind.name == name) return kind.shape;
  throw std::out_of_range(name);
}

inline LlamaConfig config_of(const LlamaShape& shape) {
  LlamaConfig config;
  static_cast<LlamaShape&>(config) = shape;
  return config;
}

/// A Config of model=llama.
inline Config whole_config(const LlamaConfig& llama, int64_t block_size) {
  static const bool added = [] {
    ModelSections::add<LlamaConfig>();
    return true;
  }();
  Config config;
  config.model = added ? "llama" : "";
  llama_of(config) = llama;
  config.data.block_size = block_size;
  return config;
}

}  // namespace ddp::train::test
