// What differs between this model's parameters and the tensors of transformers' GPT2LMHeadModel.
// Names are equal; transformers keeps some weights as Conv1D does, [in, out] instead of [out, in].
#pragma once

#include <string_view>

namespace ddp::train {

/// Whether the tensor of that name lies transposed there.
constexpr bool is_transposed_in_gpt2(std::string_view name) {
  for (const std::string_view end : {"c_attn.weight", "c_proj.weight", "c_fc.weight"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

}  // namespace ddp::train
