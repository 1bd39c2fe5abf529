// The rotary embeddings in a config.json of transformers: rope_parameters of version 5,
// rope_scaling of older ones, and the keys next to them. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/model/llama/llama_types.h"

namespace ddp::train {

/// Replaces the defaults in `shape` by the values of `config`, the content of `file`. `positions`:
/// its context. Adds to `unsupported` what the model cannot represent. Throws UserError: a value of
/// another type or out of its range.
void read_rope(LlamaShape& shape, const nlohmann::json& config, const LlamaType& type,
               const std::string& file, int64_t positions, std::vector<std::string>& unsupported);

/// The value of rope_scaling; null: none.
nlohmann::ordered_json rope_scaling_json(const RopeScaling& scaling);

}  // namespace ddp::train
