#include "trainer/model/llama/llama_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/model/llama/llama_pretrained.h"
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
  if (llama.head_dim % 2 != 0) {
    given.refuse(llama_key("head_dim"),
                 fmt::format("{} is odd, and rotary embeddings turn pairs of numbers; set it, or "
                             "n_embd / n_head, to an even number",
                             llama.head_dim));
  }
}

void check_rope(const RopeScaling& scaling, const Given& given) {
  const std::string& type = scaling.rope_type;
  const std::string key = llama_key("rope_scaling.");
  if (type != "default" && type != "linear" && type != "llama3")
    given.refuse(key + "rope_type",
                 fmt::format("'{}' is not one of default, linear, llama3; choose one", type));
  if (type == "default" && scaling.factor != 1.0) {
    given.refuse(key + "factor", fmt::format("{} has no effect with rope_type=default; set "
                                             "rope_type to linear or llama3, or remove it",
                                             scaling.factor));
  }
  if (type == "llama3" && scaling.high_freq_factor <= scaling.low_freq_factor) {
    given.refuse(key + "high_freq_factor",
                 fmt::format("{} is not above low_freq_factor={}; increase it",
                             scaling.high_freq_factor, scaling.low_freq_factor));
  }
}

}  // namespace

void complete_llama(LlamaConfig& llama, const Given& given) {
  SizeKeys keys(llama, "llama_config", given);
  const bool by_name = !llama.model_type.empty() || llama.init_from.empty();
  if (!keys.sizes_given() && by_name)
    take_what_is_not_given(llama, keys.take_preset(llama_presets(), "smollm2-135m"), given);
  if (!llama.init_from.empty()) {
    keys.follow([&](const std::string& path) {
      const PretrainedLlama there = read_pretrained_llama(path);
      if (llama.n_layer == 0) keys.take_sizes(there.shape);
      take_what_is_not_given(llama, there.shape, given);
      auto differences = there.unsupported;
      for (std::string& text : shape_differences(there.shape, llama))
        differences.push_back(std::move(text));
      return differences;
    });
  }
  if (llama.head_dim == 0) keys.check_heads();
  derive_sizes(llama);
  check_llama_heads(llama, given);
  check_rope(llama.rope_scaling, given);
}

}  // namespace ddp::train
