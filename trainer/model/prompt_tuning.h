// Prompt tuning: B. Lester et al., "The power of scale for parameter-efficient prompt tuning"
// (2021), with the names of peft's. Virtual tokens, whose embeddings alone are trained, come before
// the tokens of every sequence of a frozen pretrained model. No LibTorch in it.
#pragma once

#include <string>

#include "trainer/model/causal_architecture.h"

namespace ddp::train {

struct Config;

/// The parameter's name in the model, in snapshots and in peft's file: [tokens, width].
inline constexpr const char* kPromptName = "prompt_embeddings";

/// Takes the number of tokens from prompt_tuning.init_from and checks the section; before
/// CausalArchitecture::complete(), which checks that the model has as many positions. Throws
/// UserError: no pretrained model, lora.rank as well, a folder that holds no prompt.
void complete_prompt_tuning(Config& config, const CausalArchitecture& architecture,
                            const Given& given);

}  // namespace ddp::train
