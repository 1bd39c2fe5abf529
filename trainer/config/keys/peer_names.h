// The settings of other programs, and their keys here.
#pragma once

#include <map>
#include <string>

namespace ddp::train {

/// By the names of transformers' TrainingArguments, TRL, axolotl, Lightning, Keras and nanoGPT: a
/// key, or "KEY=VALUE", several of them separated by spaces, or a command, with a note in
/// parentheses.
const std::map<std::string, std::string>& peer_names();

}  // namespace ddp::train
