// Prompt tuning: B. Lester et al., "The power of scale for parameter-efficient prompt tuning"
// (2021), with the names of peft's. Virtual tokens, whose embeddings alone are trained, come before
// the tokens of every sequence of a frozen pretrained model. No LibTorch in it.
#pragma once

#include <string>

#include "trainer/config/keys/config_checks.h"

namespace ddp::train {

struct Config;

/// The parameter's name in the model, in snapshots and in peft's file: [tokens, width].
inline constexpr const char* kPromptName = "prompt_embeddings";

/// Takes the number of tokens from prompt_tuning.init_from and checks the section. Call before the
/// sizes are completed, which checks that the model has enough positions. Throws UserError: no
/// pretrained model, lora.rank as well, a folder that holds no prompt.
void complete_prompt_tuning(Config& config, const Given& given);

}  // namespace ddp::train
