// Shapes as in the published config.json files.
#include <algorithm>
#include <utility>

#include "trainer/model/llama/llama_config.h"
#include "trainer/model/llama/llama_types.h"

namespace ddp::train {
namespace {

constexpr bool kTied = true;
constexpr bool kUntied = false;

LlamaShape llama_2(int64_t layers, int64_t heads, int64_t width, int64_t intermediate) {
  return {.n_layer = layers,
          .n_head = heads,
          .n_kv_head = heads,
          .n_embd = width,
          .intermediate = intermediate};
}

LlamaShape llama_3_8b(double scaling) {
  LlamaShape shape{.n_layer = 32,
                   .n_head = 32,
                   .n_kv_head = 8,
                   .n_embd = 4096,
                   .intermediate = 14336,
                   .rope_theta = 5e5};
  if (scaling > 1) shape.rope_scaling = {.rope_type = "llama3", .factor = scaling};
  return shape;
}

LlamaShape llama_32(int64_t layers, int64_t heads, int64_t width) {
  return {.n_layer = layers,
          .n_head = heads,
          .n_kv_head = 8,
          .n_embd = width,
          .intermediate = 8192,
          .rope_theta = 5e5,
          .rope_scaling = {.rope_type = "llama3", .factor = 32},
          .tie_weights = kTied};
}

LlamaShape smollm2(int64_t layers, int64_t heads, int64_t kv_heads, int64_t width,
                   int64_t intermediate, double theta) {
  return {.n_layer = layers,
          .n_head = heads,
          .n_kv_head = kv_heads,
          .n_embd = width,
          .intermediate = intermediate,
          .rope_theta = theta,
          .tie_weights = kTied};
}

LlamaShape qwen25(int64_t layers, int64_t heads, int64_t kv_heads, int64_t width,
                  int64_t intermediate, bool tied) {
  return {.n_layer = layers,
          .n_head = heads,
          .n_kv_head = kv_heads,
          .n_embd = width,
          .intermediate = intermediate,
          .rope_theta = 1e6,
          .norm_eps = 1e-6,
          .tie_weights = tied,
          .qkv_bias = true};
}

LlamaShape qwen3(int64_t layers, int64_t heads, int64_t width, int64_t intermediate, bool tied) {
  return {.n_layer = layers,
          .n_head = heads,
          .n_kv_head = 8,
          .n_embd = width,
          .head_dim = 128,
          .intermediate = intermediate,
          .rope_theta = 1e6,
          .norm_eps = 1e-6,
          .tie_weights = tied,
          .qk_norm = true};
}

/// With what all models of the type have.
LlamaShape of_type(std::string_view model_type, int64_t layers, int64_t heads, int64_t kv_heads,
                   int64_t width, int64_t intermediate) {
  LlamaShape shape = find_llama_type(model_type)->defaults;
  shape.n_layer = layers;
  shape.n_head = heads;
  shape.n_kv_head = kv_heads;
  shape.n_embd = width;
  shape.intermediate = intermediate;
  return shape;
}

LlamaShape mistral_7b() {  // the third version
  LlamaShape shape = of_type("mistral", 32, 32, 8, 4096, 14336);
  shape.rope_theta = 1e6;
  shape.norm_eps = 1e-5;
  shape.sliding_window = 0;
  return shape;
}

LlamaShape phi_3_mini_4k() {
  LlamaShape shape = of_type("phi3", 32, 32, 32, 3072, 8192);
  shape.sliding_window = 2047;
  return shape;
}

LlamaShape gemma_3_1b() {
  LlamaShape shape = of_type("gemma3_text", 26, 4, 1, 1152, 6912);
  shape.sliding_window = 512;
  return shape;
}

LlamaShape mixtral_8x7b() {
  LlamaShape shape = of_type("mixtral", 32, 32, 8, 4096, 14336);
  shape.router_aux_loss_coef = 0.02;
  return shape;
}

LlamaShape qwen3_30b_a3b() {
  LlamaShape shape = of_type("qwen3_moe", 48, 32, 4, 2048, 768);
  shape.head_dim = 128;
  shape.rope_theta = 1e6;
  shape.norm_topk_prob = true;
  return shape;
}

}  // namespace

const std::vector<LlamaPreset>& llama_presets() {
  static const std::vector<LlamaPreset> presets = {
      {"llama-2-7b", llama_2(32, 32, 4096, 11008)},
      {"llama-2-13b", llama_2(40, 40, 5120, 13824)},
      {"llama-3-8b", llama_3_8b(1)},
      {"llama-3.1-8b", llama_3_8b(8)},
      {"llama-3.2-1b", llama_32(16, 32, 2048)},
      {"llama-3.2-3b", llama_32(28, 24, 3072)},
      {"tinyllama-1.1b",
       {.n_layer = 22, .n_head = 32, .n_kv_head = 4, .n_embd = 2048, .intermediate = 5632}},
      {"smollm2-135m", smollm2(30, 9, 3, 576, 1536, 1e5)},
      {"smollm2-360m", smollm2(32, 15, 5, 960, 2560, 1e5)},
      {"smollm2-1.7b", smollm2(24, 32, 32, 2048, 8192, 1.3e5)},
      {"qwen2.5-0.5b", qwen25(24, 14, 2, 896, 4864, kTied)},
      {"qwen2.5-1.5b", qwen25(28, 12, 2, 1536, 8960, kTied)},
      {"qwen2.5-3b", qwen25(36, 16, 2, 2048, 11008, kTied)},
      {"qwen2.5-7b", qwen25(28, 28, 4, 3584, 18944, kUntied)},
      {"qwen3-0.6b", qwen3(28, 16, 1024, 3072, kTied)},
      {"qwen3-1.7b", qwen3(28, 16, 2048, 6144, kTied)},
      {"qwen3-4b", qwen3(36, 32, 2560, 9728, kTied)},
      {"qwen3-8b", qwen3(36, 32, 4096, 12288, kUntied)},
      {"mistral-7b", mistral_7b()},
      {"phi-3-mini-4k", phi_3_mini_4k()},
      {"gemma-2-2b", of_type("gemma2", 26, 8, 4, 2304, 9216)},
      {"gemma-2-9b", of_type("gemma2", 42, 16, 8, 3584, 14336)},
      {"gemma-3-1b", gemma_3_1b()},
      {"mixtral-8x7b", mixtral_8x7b()},
      {"qwen3-30b-a3b", qwen3_30b_a3b()},
      {"llama-mini",
       {.n_layer = 6,
        .n_head = 6,
        .n_kv_head = 2,
        .n_embd = 192,
        .intermediate = 512,
        .tie_weights = kTied}}};
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
