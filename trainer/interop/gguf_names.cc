#include "trainer/interop/gguf_names.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace ddp::train {
namespace {

struct NamePair {
  std::string_view own, theirs;
};
constexpr NamePair kOutside[] = {
    {"model.embed_tokens", "token_embd"}, {"transformer.wte", "token_embd"},
    {"transformer.wpe", "position_embd"}, {"model.norm", "output_norm"},
    {"transformer.ln_f", "output_norm"},  {"lm_head", "output"}};
constexpr NamePair kInBlock[] = {{"input_layernorm", "attn_norm"},
                                 {"self_attn.q_proj", "attn_q"},
                                 {"self_attn.k_proj", "attn_k"},
                                 {"self_attn.v_proj", "attn_v"},
                                 {"self_attn.qkv_proj", "attn_qkv"},
                                 {"self_attn.o_proj", "attn_output"},
                                 {"self_attn.q_norm", "attn_q_norm"},
                                 {"self_attn.k_norm", "attn_k_norm"},
                                 {"post_attention_layernorm", "ffn_norm"},
                                 {"mlp.gate_proj", "ffn_gate"},
                                 {"mlp.up_proj", "ffn_up"},
                                 {"mlp.gate_up_proj", "ffn_up"},
                                 {"mlp.down_proj", "ffn_down"},
                                 {"mlp.gate", "ffn_gate_inp"},
                                 {"mlp.experts.gate_proj", "ffn_gate_exps"},
                                 {"mlp.experts.up_proj", "ffn_up_exps"},
                                 {"mlp.experts.down_proj", "ffn_down_exps"},
                                 {"block_sparse_moe.gate", "ffn_gate_inp"},
                                 {"block_sparse_moe.experts.w1", "ffn_gate_exps"},
                                 {"block_sparse_moe.experts.w3", "ffn_up_exps"},
                                 {"block_sparse_moe.experts.w2", "ffn_down_exps"},
                                 {"ln_1", "attn_norm"},
                                 {"attn.c_attn", "attn_qkv"},
                                 {"attn.c_proj", "attn_output"},
                                 {"ln_2", "ffn_norm"},
                                 {"mlp.c_fc", "ffn_up"},
                                 {"mlp.c_proj", "ffn_down"}};
constexpr NamePair kInGemmaBlock[] = {{"post_attention_layernorm", "post_attention_norm"},
                                      {"pre_feedforward_layernorm", "ffn_norm"},
                                      {"post_feedforward_layernorm", "post_ffw_norm"}};

std::string_view theirs_of(std::span<const NamePair> names, std::string_view own) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [own](const NamePair& pair) { return pair.own == own; });
  return found == names.end() ? std::string_view() : found->theirs;
}

}  // namespace

std::string gguf_name(std::string_view own, bool of_gemma) {
  const auto end = own.rfind('.');
  std::string_view layer = own.substr(0, end);
  std::string block;
  for (const std::string_view stack : {"model.layers.", "transformer.h."}) {
    if (!layer.starts_with(stack)) continue;
    const auto number = layer.substr(stack.size(), layer.find('.', stack.size()) - stack.size());
    block = fmt::format("blk.{}.", number);
    layer.remove_prefix(stack.size() + number.size() + 1);
  }
  std::string_view name = of_gemma && !block.empty() ? theirs_of(kInGemmaBlock, layer) : "";
  if (name.empty()) name = block.empty() ? theirs_of(kOutside, layer) : theirs_of(kInBlock, layer);
  TORCH_CHECK(!name.empty(), own, " has no name in GGUF files");
  return fmt::format("{}{}{}", block, name, own.substr(end));
}

}  // namespace ddp::train
