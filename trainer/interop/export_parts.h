// The parts of export_model(): formats of other programs, and the files that an export takes from
// the pretrained model that its run started from.
#pragma once

#include <string>
#include <vector>

#include "trainer/interop/export_model.h"
#include "trainer/tensorfile/gguf.h"

namespace ddp::train {

/// Whether the model has a row of weights for each position, and so no context beyond them.
bool has_position_table(const Config& config);

/// `own`: the files that describe the tokenizer of a model without a base. Returns them with the
/// base's in their place; a chat template that is not the base's stays, with its special tokens.
TextFiles with_base_tokenizer(TextFiles own, const ExportedModel& model);

/// `own`: config.json and generation_config.json. Returns the base's with the sizes, positions and
/// labels that `own` has, and the token that ends an answer, if the run was trained on chats.
/// Throws UserError: the base is of other sizes.
TextFiles with_base_config(TextFiles own, const ExportedModel& model);

/// Writes adapter_config.json and adapter_model.safetensors, for PeftModel.from_pretrained() of the
/// pretrained model of init_from; for a chat model also the files of the tokenizer with the chat
/// template, which trl and peft place next to adapters. `model.weights`: those of the adapters.
/// Returns the names of the files written. Throws RunError.
std::vector<std::string> export_peft(const ExportedModel& model, const Tokenizer& tokenizer,
                                     const std::string& folder);

/// Writes model.gguf into `folder`, with the names and keys of llama.cpp's convert_hf_to_gguf.py,
/// one tensor at a time. `texts`: the files of a folder for transformers. Returns the file's name.
/// Throws UserError, in one line, if llama.cpp has no such model or tokenizer, or would compute
/// something else with it.
std::vector<std::string> export_gguf(const ExportedModel& model, const Tokenizer& tokenizer,
                                     const TextFiles& texts, const std::string& folder);

/// The keys tokenizer.* of such a file. Throws UserError, likewise.
GgufMetadata gguf_tokenizer(const Tokenizer& tokenizer, const TextFiles& texts,
                            const std::optional<ChatFacts>& chat);

}  // namespace ddp::train
