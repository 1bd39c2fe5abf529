#include "trainer/model/llama/llama_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/config/config.h"
#include "trainer/model/llama/llama_pretrained.h"
#include "trainer/model/llama/llama_types.h"
#include "trainer/model/llama/shape_values.h"
#include "trainer/model/load/size_keys.h"

namespace ddp::train {
namespace {

std::string llama_key(const std::string& name) { return "llama_config." + name; }

bool is_given(const Given& given, const std::string& name) {
  const std::string key = llama_key(name);
  return given.has(key) ||
         std::any_of(given.values().begin(), given.values().end(),
                     [&key](const auto& value) { return value.first.starts_with(key + "."); });
}

/// The values of `from` for the keys that are not given.
void take_what_is_not_given(LlamaConfig& llama, const LlamaShape& from, const Given& given) {
  each_shape_value([&](const char* name, auto member) {
    if (!is_given(given, name)) llama.*member = from.*member;
  });
}

/// What every model of a family has, without which transformers has no such model.
void take_family(LlamaConfig& llama, const Given& given) {
  const LlamaShape& of_family = family_of(llama).defaults;
  if (!is_given(given, "qk_norm")) llama.qk_norm = llama.qk_norm || of_family.qk_norm;
  if (!is_given(given, "rope_local_base_freq") && llama.rope_local_base_freq == 0)
    llama.rope_local_base_freq = of_family.rope_local_base_freq;
  if (llama.n_expert == 0) llama.n_expert = of_family.n_expert;
  if (llama.n_expert_per_token == 0) llama.n_expert_per_token = of_family.n_expert_per_token;
  if (!is_given(given, "norm_topk_prob"))
    llama.norm_topk_prob = llama.norm_topk_prob || of_family.norm_topk_prob;
}

void derive_sizes(LlamaConfig& llama) {
  constexpr int64_t kRows = 64;
  if (llama.n_kv_head == 0) llama.n_kv_head = llama.n_head;
  if (llama.head_dim == 0) llama.head_dim = llama.n_embd / llama.n_head;
  if (llama.intermediate == 0)
    llama.intermediate = (8 * llama.n_embd / 3 + kRows - 1) / kRows * kRows;
}

void check_llama_heads(const LlamaConfig& llama, const Given& given) {
  if (llama.n_head % llama.n_kv_head != 0) {
    given.refuse(llama_key("n_kv_head"),
                 fmt::format("{} does not divide n_head={}; set one of its divisors",
                             llama.n_kv_head, llama.n_head));
  }
  if (const int64_t turned = rotary_width(llama);
      llama.head_dim % 2 == 0 && (turned == 0 || turned % 2 != 0)) {
    given.refuse(llama_key("partial_rotary_factor"),
                 fmt::format("{} x {} are {} numbers of each head, and rotary embeddings turn "
                             "pairs; choose another share",
                             llama.partial_rotary_factor, llama.head_dim, turned));
  }
  if (llama.head_dim % 2 != 0) {
    given.refuse(llama_key("head_dim"),
                 fmt::format("{} is odd, and rotary embeddings turn pairs of numbers; set it, or "
                             "n_embd / n_head, to an even number",
                             llama.head_dim));
  }
}

void check_family(const LlamaConfig& llama, const Given& given) {
  std::vector<std::string> names = {"llama"};
  for (const LlamaType& type : llama_types())
    if (!type.defaults.family.empty()) names.emplace_back(type.model_type);
  if (llama.family.empty() || std::find(names.begin(), names.end(), llama.family) != names.end())
    return;
  given.refuse(llama_key("family"),
               fmt::format("'{}' is not one of {}; {}", llama.family, fmt::join(names, ", "),
                           did_you_mean(llama.family, names, "choose one")));
}

void check_experts(const LlamaConfig& llama, const Given& given) {
  const LlamaShape& of_family = family_of(llama).defaults;
  if (of_family.n_expert == 0) {
    if (llama.n_expert > 0 || llama.n_expert_per_token > 0)
      given.refuse(llama_key(llama.n_expert > 0 ? "n_expert" : "n_expert_per_token"),
                   fmt::format("models of family={} have no experts; set llama_config.family to "
                               "mixtral or qwen3_moe",
                               family_of(llama).model_type));
    return;
  }
  if (llama.n_expert_per_token > llama.n_expert)
    given.refuse(llama_key("n_expert_per_token"),
                 fmt::format("{} is above n_expert={}; reduce it", llama.n_expert_per_token,
                             llama.n_expert));
  if (of_family.norm_topk_prob && !llama.norm_topk_prob)
    given.refuse(llama_key("norm_topk_prob"),
                 fmt::format("family={} always scales the weights of a token's experts; remove it",
                             llama.family));
}

void check_rope(const RopeScaling& scaling, const Given& given) {
  const std::string& type = scaling.rope_type;
  const std::string key = llama_key("rope_scaling.");
  if (!is_rope_type(type)) {
    given.refuse(key + "rope_type", fmt::format("'{}' is not one of {}; choose one", type,
                                                fmt::join(kRopeTypes, ", ")));
  }
  if (type == "default" && scaling.factor != 1.0) {
    given.refuse(key + "factor", fmt::format("{} has no effect with rope_type=default; set "
                                             "rope_type, or remove it",
                                             scaling.factor));
  }
  if (type == "yarn" && scaling.beta_fast <= scaling.beta_slow) {
    given.refuse(key + "beta_fast", fmt::format("{} is not above beta_slow={}; increase it",
                                                scaling.beta_fast, scaling.beta_slow));
  }
  if (type == "llama3" && scaling.high_freq_factor <= scaling.low_freq_factor) {
    given.refuse(key + "high_freq_factor",
                 fmt::format("{} is not above low_freq_factor={}; increase it",
                             scaling.high_freq_factor, scaling.low_freq_factor));
  }
}

}  // namespace

LlamaConfig& llama_of(Config& config) { return config.models.of<LlamaConfig>(); }
const LlamaConfig& llama_of(const Config& config) { return config.models.of<LlamaConfig>(); }

int64_t window_of(const LlamaShape& shape, int64_t layer) {
  const int64_t every = shape.full_attention_every;
  return every > 0 && (layer + 1) % every == 0 ? 0 : shape.sliding_window;
}

int64_t rotary_width(const LlamaShape& shape) {
  return static_cast<int64_t>(static_cast<double>(shape.head_dim) * shape.partial_rotary_factor);
}

void complete_llama(LlamaConfig& llama, const Given& given) {
  if (llama.family == "llama") llama.family.clear();
  SizeKeys keys(llama, "llama_config", given);
  const bool by_name = !llama.model_type.empty() || llama.init_from.empty();
  const auto take = [&](const LlamaShape& from) {
    take_what_is_not_given(llama, from, given);
    if (!is_given(given, "router_aux_loss_coef"))
      llama.router_aux_loss_coef = from.router_aux_loss_coef;
  };
  if (!keys.sizes_given() && by_name) take(keys.take_preset(llama_presets(), "smollm2-135m"));
  if (!llama.init_from.empty()) {
    keys.follow([&](const std::string& path) {
      const PretrainedLlama there = read_pretrained_llama(path);
      if (!there.head_note.empty()) note_on_one_rank(there.head_note);
      if (llama.n_layer == 0) keys.take_sizes(there.shape);
      take(there.shape);
      auto differences = there.unsupported;
      for (std::string& text : shape_differences(there.shape, llama))
        differences.push_back(std::move(text));
      return differences;
    });
  }
  if (llama.head_dim == 0) keys.check_heads();
  check_family(llama, given);
  take_family(llama, given);
  derive_sizes(llama);
  if (family_of(llama).has_softcaps && llama.query_pre_attn_scalar == 0)
    llama.query_pre_attn_scalar = static_cast<double>(llama.head_dim);
  if (llama.sliding_window == 0 || llama.full_attention_every > llama.n_layer)
    llama.full_attention_every = 0;
  check_llama_heads(llama, given);
  check_experts(llama, given);
  check_rope(llama.rope_scaling, given);
}

}  // namespace ddp::train
