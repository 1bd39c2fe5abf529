// trainer's keys, for checks during the composition of a configuration, and their names elsewhere.
#pragma once

#include <map>
#include <string>

#include "trainer/hydra/compose/known_keys.h"

namespace ddp::train {

const KnownKeys& trainer_keys();

/// By the names of transformers' TrainingArguments, TRL, axolotl, Lightning, Keras and nanoGPT: a
/// key, or "KEY=VALUE", several of them separated by spaces, or a command, with a note in
/// parentheses.
const std::map<std::string, std::string>& peer_names();

}  // namespace ddp::train
