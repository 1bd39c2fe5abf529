// Shapes as in the published config.json files.
#include <algorithm>
#include <utility>

#include "trainer/model/llama/llama_config.h"
#include "trainer/model/llama/llama_types.h"

namespace ddp::train {
namespace {

constexpr bool kTied = true;
constexpr bool kUntied = false;

/// `shape` in these sizes.
LlamaShape sized(int64_t layers, int64_t heads, int64_t kv_heads, int64_t width,
                 int64_t intermediate, LlamaShape shape = {}) {
  shape.n_layer = layers;
  shape.n_head = heads;
  shape.n_kv_head = kv_heads;
  shape.n_embd = width;
  shape.intermediate = intermediate;
  return shape;
}

LlamaShape llama_3(double scaling, bool tied = kUntied) {
  LlamaShape shape{.rope_theta = 5e5, .tie_weights = tied};
  if (scaling > 1) shape.rope_scaling = {.rope_type = "llama3", .factor = scaling};
  return shape;
}

LlamaShape smollm2(double theta) { return {.rope_theta = theta, .tie_weights = kTied}; }

LlamaShape qwen25(bool tied) {
  return {.rope_theta = 1e6, .norm_eps = 1e-6, .tie_weights = tied, .qkv_bias = true};
}

LlamaShape qwen3(bool tied) {
  return {
      .head_dim = 128, .rope_theta = 1e6, .norm_eps = 1e-6, .tie_weights = tied, .qk_norm = true};
}

/// What all models of the type have.
LlamaShape of_type(std::string_view model_type) { return find_llama_type(model_type)->defaults; }

LlamaShape with_window(std::string_view model_type, int64_t tokens) {
  LlamaShape shape = of_type(model_type);
  shape.sliding_window = tokens;
  return shape;
}

LlamaShape mistral_v3() {
  LlamaShape shape = with_window("mistral", 0);
  shape.rope_theta = 1e6;
  shape.norm_eps = 1e-5;
  return shape;
}

LlamaShape mixtral() {
  LlamaShape shape = of_type("mixtral");
  shape.router_aux_loss_coef = 0.02;
  return shape;
}

LlamaShape qwen3_a3b() {
  LlamaShape shape = of_type("qwen3_moe");
  shape.head_dim = 128;
  shape.rope_theta = 1e6;
  shape.norm_topk_prob = true;
  return shape;
}

}  // namespace

const std::vector<LlamaPreset>& llama_presets() {
  static const std::vector<LlamaPreset> presets = {
      {"llama-2-7b", sized(32, 32, 32, 4096, 11008)},
      {"llama-2-13b", sized(40, 40, 40, 5120, 13824)},
      {"llama-3-8b", sized(32, 32, 8, 4096, 14336, llama_3(1))},
      {"llama-3.1-8b", sized(32, 32, 8, 4096, 14336, llama_3(8))},
      {"llama-3.2-1b", sized(16, 32, 8, 2048, 8192, llama_3(32, kTied))},
      {"llama-3.2-3b", sized(28, 24, 8, 3072, 8192, llama_3(32, kTied))},
      {"tinyllama-1.1b", sized(22, 32, 4, 2048, 5632)},
      {"smollm2-135m", sized(30, 9, 3, 576, 1536, smollm2(1e5))},
      {"smollm2-360m", sized(32, 15, 5, 960, 2560, smollm2(1e5))},
      {"smollm2-1.7b", sized(24, 32, 32, 2048, 8192, smollm2(1.3e5))},
      {"qwen2.5-0.5b", sized(24, 14, 2, 896, 4864, qwen25(kTied))},
      {"qwen2.5-1.5b", sized(28, 12, 2, 1536, 8960, qwen25(kTied))},
      {"qwen2.5-3b", sized(36, 16, 2, 2048, 11008, qwen25(kTied))},
      {"qwen2.5-7b", sized(28, 28, 4, 3584, 18944, qwen25(kUntied))},
      {"qwen3-0.6b", sized(28, 16, 8, 1024, 3072, qwen3(kTied))},
      {"qwen3-1.7b", sized(28, 16, 8, 2048, 6144, qwen3(kTied))},
      {"qwen3-4b", sized(36, 32, 8, 2560, 9728, qwen3(kTied))},
      {"qwen3-8b", sized(36, 32, 8, 4096, 12288, qwen3(kUntied))},
      {"mistral-7b", sized(32, 32, 8, 4096, 14336, mistral_v3())},
      {"phi-3-mini-4k", sized(32, 32, 32, 3072, 8192, with_window("phi3", 2047))},
      {"gemma-2-2b", sized(26, 8, 4, 2304, 9216, of_type("gemma2"))},
      {"gemma-2-9b", sized(42, 16, 8, 3584, 14336, of_type("gemma2"))},
      {"gemma-3-1b", sized(26, 4, 1, 1152, 6912, with_window("gemma3_text", 512))},
      {"mixtral-8x7b", sized(32, 32, 8, 4096, 14336, mixtral())},
      {"qwen3-30b-a3b", sized(48, 32, 4, 2048, 768, qwen3_a3b())},
      {"llama-mini", sized(6, 6, 2, 192, 512, {.tie_weights = kTied})}};
  return presets;
}

int64_t published_vocabulary(std::string_view model_type) {
  static const std::vector<std::pair<std::string_view, int64_t>> sizes = {
      {"llama-2-", 32000},    {"llama-3", 128256},  {"tinyllama-", 32000}, {"smollm2-", 49152},
      {"qwen2.5-7b", 152064}, {"qwen2.5-", 151936}, {"qwen3-", 151936},    {"mistral-", 32768},
      {"phi-3-", 32064},      {"gemma-2-", 256000}, {"gemma-3-", 262144},  {"mixtral-", 32000}};
  const auto found = std::find_if(sizes.begin(), sizes.end(), [&](const auto& size) {
    return model_type.starts_with(size.first);
  });
  return found == sizes.end() ? 0 : found->second;
}

}  // namespace ddp::train
