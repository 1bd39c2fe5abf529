// Adapters and prompts as files that peft reads (https://github.com/huggingface/peft).
#pragma once

#include <string>
#include <vector>

#include "trainer/interop/export_model.h"

namespace ddp::train {

/// adapter_config.json and adapter_model.safetensors, for PeftModel.from_pretrained() of the
/// pretrained model of init_from; for a chat model also the files of the tokenizer with the chat
/// template, which trl and peft place next to adapters. `model.weights`: those of the adapters.
/// Returns the names of the files written. Throws RunError.
std::vector<std::string> export_peft(const ExportedModel& model, const Tokenizer& tokenizer,
                                     const std::string& folder);

}  // namespace ddp::train
