// The parts of a tokenizer.json around its BPE model: how text becomes words, what precedes it, how
// tokens become text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/tokenizer/bpe/bpe_spec.h"

namespace ddp::train {

/// Fills in all of `spec` from `root` except vocabulary, merges and added tokens, which it has
/// already. Throws UserError: "NAME: KEY: what is not reproduced here".
void read_bpe_parts(const nlohmann::json& root, const std::string& name, BpeSpec& spec);

/// Returns the member of an object; null if there is none or `object` is not an object.
const nlohmann::json& part_member(const nlohmann::json& object, const char* name);
bool part_flag(const nlohmann::json& object, const char* name, bool otherwise);
/// Returns the type of a part, "" if it has none.
std::string part_type(const nlohmann::json& part);

}  // namespace ddp::train
