#include "trainer/model/llama/llama_types.h"

#include <algorithm>

namespace ddp::train {

namespace {

/// All models that were published first had 32 layers and heads, of 4096 / 32 but for Phi's.
LlamaShape of_first_models(int64_t intermediate, LlamaShape shape) {
  shape.n_layer = shape.n_head = 32;
  if (shape.n_embd == 0) shape.n_embd = 4096;
  shape.intermediate = intermediate;
  return shape;
}

/// What both Gemmas have.
LlamaType gemma(std::string_view model_type, const char* class_name, int64_t positions) {
  return {.model_type = model_type,
          .class_name = class_name,
          .positions = positions,
          .defaults = {.n_layer = 26,
                       .n_head = 8,
                       .n_kv_head = 4,
                       .n_embd = 2304,
                       .head_dim = 256,
                       .intermediate = 9216,
                       .norm_eps = 1e-6,
                       .tie_weights = true,
                       .family = std::string(model_type),
                       .sliding_window = 4096,
                       .query_pre_attn_scalar = 256},
          .has_window = true,
          .has_softcaps = true,
          .is_gemma = true,
          .has_post_norms = true};
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
  return {.model_type = "mixtral",
          .class_name = "MixtralForCausalLM",
          .positions = 131072,
          .defaults = of_first_models(14336, {.n_kv_head = 8,
                                              .rope_theta = 1e6,
                                              .family = "mixtral",
                                              .n_expert = 8,
                                              .n_expert_per_token = 2,
                                              .norm_topk_prob = true}),
          .has_window = true,
          .names = {"block_sparse_moe", "w1", "w3", "w2"}};
}

LlamaType qwen3_moe() {
  return {.model_type = "qwen3_moe",
          .class_name = "Qwen3MoeForCausalLM",
          .positions = 32768,
          .defaults = {.n_layer = 24,
                       .n_head = 32,
                       .n_kv_head = 4,
                       .n_embd = 2048,
                       .intermediate = 768,
                       .norm_eps = 1e-6,
                       .qk_norm = true,
                       .family = "qwen3_moe",
                       .n_expert = 128,
                       .n_expert_per_token = 8},
          .rounds_router_weights = true,
          .inner_key = "moe_intermediate_size"};
}

}  // namespace

// After the classes of transformers 5.23, which have the defaults of version 4.
const std::vector<LlamaType>& llama_types() {
  static const std::vector<LlamaType> types = {
      {"llama", "LlamaForCausalLM", 2048, of_first_models(11008, {.norm_eps = 1e-6})},
      {"qwen2", "Qwen2ForCausalLM", 32768,
       of_first_models(22016, {.norm_eps = 1e-6, .qkv_bias = true})},
      {"qwen3", "Qwen3ForCausalLM", 32768,
       of_first_models(22016, {.head_dim = 128, .norm_eps = 1e-6, .qk_norm = true})},
      {.model_type = "mistral",
       .class_name = "MistralForCausalLM",
       .positions = 131072,
       .defaults = of_first_models(
           14336, {.n_kv_head = 8, .norm_eps = 1e-6, .family = "mistral", .sliding_window = 4096}),
       .has_window = true},
      {.model_type = "phi3",
       .class_name = "Phi3ForCausalLM",
       .positions = 4096,
       .defaults = of_first_models(8192, {.n_embd = 3072, .family = "phi3"}),
       .has_window = true,
       .has_partial_rotary = true,
       .scales_rope = false},
      gemma2(),
      gemma3_text(),
      mixtral(),
      qwen3_moe()};
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
