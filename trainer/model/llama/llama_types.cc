#include "trainer/model/llama/llama_types.h"

#include <algorithm>

namespace ddp::train {

namespace {

/// All models that were published first had 32 layers and heads of 4096 / 32.
LlamaShape defaults_7b(int64_t intermediate) {
  LlamaShape shape;
  shape.n_layer = shape.n_head = 32;
  shape.n_embd = 4096;
  shape.intermediate = intermediate;
  shape.norm_eps = 1e-6;
  return shape;
}

LlamaType llama() {
  LlamaType type{"llama", "LlamaForCausalLM", 2048};
  type.defaults = defaults_7b(11008);
  return type;
}

LlamaType qwen2() {
  LlamaType type{"qwen2", "Qwen2ForCausalLM", 32768};
  type.defaults = defaults_7b(22016);
  type.defaults.qkv_bias = true;
  return type;
}

LlamaType qwen3() {
  LlamaType type{"qwen3", "Qwen3ForCausalLM", 32768};
  type.defaults = defaults_7b(22016);
  type.defaults.head_dim = 128;
  type.defaults.qk_norm = true;
  return type;
}

LlamaType mistral() {
  LlamaType type{"mistral", "MistralForCausalLM", 131072};
  type.has_window = true;
  type.defaults = defaults_7b(14336);
  type.defaults.family = type.model_type;
  type.defaults.n_kv_head = 8;
  type.defaults.sliding_window = 4096;
  return type;
}

LlamaType phi3() {
  LlamaType type{"phi3", "Phi3ForCausalLM", 4096};
  type.has_window = type.has_partial_rotary = true;
  type.scales_rope = false;
  type.defaults = defaults_7b(8192);
  type.defaults.family = type.model_type;
  type.defaults.n_embd = 3072;
  type.defaults.norm_eps = 1e-5;
  return type;
}

/// What both Gemmas have.
LlamaType gemma(std::string_view model_type, const char* class_name, int64_t positions) {
  LlamaType type{model_type, class_name, positions};
  type.has_window = type.has_softcaps = type.is_gemma = type.has_post_norms = true;
  type.defaults.family = model_type;
  type.defaults.n_layer = 26;
  type.defaults.n_head = 8;
  type.defaults.n_kv_head = 4;
  type.defaults.n_embd = 2304;
  type.defaults.head_dim = 256;
  type.defaults.intermediate = 9216;
  type.defaults.norm_eps = 1e-6;
  type.defaults.tie_weights = true;
  type.defaults.sliding_window = 4096;
  type.defaults.query_pre_attn_scalar = 256;
  return type;
}

LlamaType gemma2() {
  LlamaType type = gemma("gemma2", "Gemma2ForCausalLM", 8192);
  type.defaults.full_attention_every = 2;
  type.defaults.attn_logit_softcapping = 50;
  type.defaults.final_logit_softcapping = 30;
  return type;
}

LlamaType gemma3_text() {
  LlamaType type = gemma("gemma3_text", "Gemma3ForCausalLM", 131072);
  type.has_local_rope = true;
  type.defaults.full_attention_every = 6;
  type.defaults.qk_norm = true;
  type.defaults.rope_theta = 1e6;
  type.defaults.rope_local_base_freq = 1e4;
  return type;
}

LlamaType mixtral() {
  LlamaType type{"mixtral", "MixtralForCausalLM", 131072};
  type.has_window = true;
  type.names = {"block_sparse_moe", "w1", "w3", "w2"};
  type.defaults = defaults_7b(14336);
  type.defaults.family = type.model_type;
  type.defaults.n_kv_head = 8;
  type.defaults.norm_eps = 1e-5;
  type.defaults.rope_theta = 1e6;
  type.defaults.n_expert = 8;
  type.defaults.n_expert_per_token = 2;
  type.defaults.norm_topk_prob = true;
  return type;
}

LlamaType qwen3_moe() {
  LlamaType type{"qwen3_moe", "Qwen3MoeForCausalLM", 32768};
  type.rounds_router_weights = true;
  type.inner_key = "moe_intermediate_size";
  type.defaults = defaults_7b(768);
  type.defaults.family = type.model_type;
  type.defaults.n_layer = 24;
  type.defaults.n_kv_head = 4;
  type.defaults.n_embd = 2048;
  type.defaults.qk_norm = true;
  type.defaults.n_expert = 128;
  type.defaults.n_expert_per_token = 8;
  return type;
}

}  // namespace

// After the classes of transformers 5.23, which have the defaults of version 4.
const std::vector<LlamaType>& llama_types() {
  static const std::vector<LlamaType> types = {llama(),       qwen2(),   qwen3(),
                                               mistral(),     phi3(),    gemma2(),
                                               gemma3_text(), mixtral(), qwen3_moe()};
  return types;
}

const LlamaType* find_llama_type(std::string_view model_type) {
  const auto& types = llama_types();
  const auto found = std::find_if(types.begin(), types.end(), [&](const LlamaType& type) {
    return type.model_type == model_type;
  });
  return found == types.end() ? nullptr : &*found;
}

const LlamaType& family_of(const LlamaShape& shape) {
  return *find_llama_type(shape.family.empty() ? "llama" : shape.family);
}

const LlamaType& llama_type_of(const LlamaShape& shape) {
  if (shape.family.empty() && shape.qk_norm) return *find_llama_type("qwen3");
  if (shape.family.empty() && shape.qkv_bias) return *find_llama_type("qwen2");
  return family_of(shape);
}

}  // namespace ddp::train
