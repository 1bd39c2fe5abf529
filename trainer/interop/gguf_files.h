// A language model as one file for llama.cpp.
#pragma once

#include <string>
#include <vector>

#include "trainer/interop/export_model.h"
#include "trainer/tensorfile/gguf.h"

namespace ddp::train {

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
