// The values of a LlamaShape besides its three sizes, listed once: a preset or a pretrained model
// provides those not configured; configured ones must agree with it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "trainer/model/llama/llama_config.h"
#include "trainer/model/load/pretrained_json.h"

template <>
struct fmt::formatter<ddp::train::RopeScaling> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const ddp::train::RopeScaling& scaling, Context& context) const {
    std::string text = scaling.rope_type;
    if (text != "default") text += fmt::format(" of factor {}", scaling.factor);
    if (text.starts_with("llama3"))
      text += fmt::format(", frequency factors {} and {}, {} positions", scaling.low_freq_factor,
                          scaling.high_freq_factor, scaling.original_max_position_embeddings);
    if (text.starts_with("yarn"))
      text += fmt::format(", attention factor {}, betas {} and {}, {} positions",
                          scaling.attention_factor, scaling.beta_fast, scaling.beta_slow,
                          scaling.original_max_position_embeddings);
    if (text.starts_with("dynamic"))
      text += fmt::format(", {} positions", scaling.original_max_position_embeddings);
    return fmt::formatter<std::string>::format(text, context);
  }
};

namespace ddp::train {

/// Calls visit(name, member pointer) for each.
template <class Visit>
void each_shape_value(const Visit& visit) {
  visit("n_kv_head", &LlamaShape::n_kv_head);
  visit("head_dim", &LlamaShape::head_dim);
  visit("intermediate", &LlamaShape::intermediate);
  visit("rope_theta", &LlamaShape::rope_theta);
  visit("rope_scaling", &LlamaShape::rope_scaling);
  visit("norm_eps", &LlamaShape::norm_eps);
  visit("tie_weights", &LlamaShape::tie_weights);
  visit("qkv_bias", &LlamaShape::qkv_bias);
  visit("qk_norm", &LlamaShape::qk_norm);
  visit("family", &LlamaShape::family);
  visit("partial_rotary_factor", &LlamaShape::partial_rotary_factor);
  visit("sliding_window", &LlamaShape::sliding_window);
  visit("full_attention_every", &LlamaShape::full_attention_every);
  visit("rope_local_base_freq", &LlamaShape::rope_local_base_freq);
  visit("query_pre_attn_scalar", &LlamaShape::query_pre_attn_scalar);
  visit("attn_logit_softcapping", &LlamaShape::attn_logit_softcapping);
  visit("final_logit_softcapping", &LlamaShape::final_logit_softcapping);
  visit("n_expert", &LlamaShape::n_expert);
  visit("n_expert_per_token", &LlamaShape::n_expert_per_token);
  visit("norm_topk_prob", &LlamaShape::norm_topk_prob);
}

/// "n_layer is 2 there, 3 here"
inline std::vector<std::string> shape_differences(const LlamaShape& there, const LlamaShape& here) {
  std::vector<std::string> differences;
  compare_value(differences, "n_layer", there.n_layer, here.n_layer);
  compare_value(differences, "n_head", there.n_head, here.n_head);
  compare_value(differences, "n_embd", there.n_embd, here.n_embd);
  each_shape_value([&](const char* name, auto member) {
    compare_value(differences, name, there.*member, here.*member);
  });
  return differences;
}

}  // namespace ddp::train
