// Tiny models of each kind in the Llama family.
#pragma once

#include <string>
#include <vector>

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
  return kinds;
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
