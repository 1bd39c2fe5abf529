// What llama.cpp calls the tensors of a model.
#pragma once

#include <string>
#include <string_view>

namespace ddp::train {

/// "model.layers.3.mlp.up_proj.weight" becomes "blk.3.ffn_up.weight".
std::string gguf_name(std::string_view own, bool of_gemma);

}  // namespace ddp::train
