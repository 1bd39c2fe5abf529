// The contents of a pretrained model's folder besides weights: runs that start from it store them
// in their snapshots, so that generation follows them and exports include them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/interop/tokenizer_files.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// Metadata key of base_settings_state() in snapshots.
inline constexpr const char* kBaseSettings = "base_settings";

struct BaseSettings {
  std::string folder;           ///< Its path when it was read; absolute.
  bool same_tokenizer = false;  ///< The model has the tokens of the folder, so ids mean the same.
  TextFiles texts;              ///< config.json, generation_config.json, tokenizer_config.json, ...
  std::vector<std::string> large;  ///< Names of its tokenizer's other files, such as merges.txt.
};

/// `path`: the folder of a pretrained model, or a snapshot, whose own settings are passed on.
/// `tokenizer`: the model's, compared with the folder's; null: it is the folder's. Returns "" if
/// there is nothing to store. Throws UserError: a file that cannot be read.
std::string base_settings_state(const std::string& path, const Tokenizer* tokenizer);

/// The settings in a snapshot's metadata; nullopt if it has none. Throws RunError: damaged.
std::optional<BaseSettings> base_settings_of(const std::map<std::string, std::string>& metadata);

/// Adds the tokenizer's larger files from `folder` to `base.texts`, if its tokenizer is still
/// `tokenizer`. Returns the missing ones of base.large.
std::vector<std::string> take_large_files(BaseSettings& base, const std::string& folder,
                                          const Tokenizer& tokenizer);

/// Returns the weights' type in config.json, such as "bfloat16"; "" if it has none.
std::string base_dtype(const BaseSettings& base);

/// Returns the tokens that end a text: the tokenizer's end of text, eos_token_id of
/// generation_config.json (or else of config.json) and eos_token of the tokenizer's files. Throws
/// UserError: eos_token_id is neither an id nor a list of ids.
std::vector<int32_t> stop_tokens(const std::map<std::string, std::string>& metadata,
                                 const Tokenizer& tokenizer);

/// Returns how generation_config.json asks to sample, as options of `trainer generate`:
/// " --temperature 0.6 --top_k 20"; "" if it does not. Without do_sample transformers applies
/// repetition_penalty alone.
std::string sampling_of_base(const std::map<std::string, std::string>& metadata);

}  // namespace ddp::train
