// Maps a transformers model's tensor names and layouts to this trainer's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::train {

/// Linear layers that are one in the files of a model: the rows of its weight are those of `parts`.
struct FusedLayers {
  std::string model_type;  ///< In config.json.
  std::string theirs;
  std::vector<std::string> parts;
};

struct PretrainedLayout {
  const char* key;  ///< The configuration key of the folder.
  /// This trainer's name for one of theirs; "": not a parameter here.
  std::string (*own_name)(const std::string& theirs);
  /// Whether the tensor is [in, out] there, [out, in] here.
  bool (*is_transposed)(std::string_view own_name);
  /// Parts that a folder may lack, and that are ignored if no parameter corresponds to them.
  bool (*is_optional)(std::string_view own_name);
  const char* positions;    ///< Suffix of the position embeddings' name; null: it has none.
  const char* words;        ///< Suffix of the token embeddings' name.
  const char* how_to_make;  ///< The fix printed for a folder without safetensors.
  std::vector<FusedLayers> fused{};
  const char* file = "model.safetensors";  ///< Shards are listed in FILE.index.json.
};

inline bool is_never_transposed(std::string_view /*name*/) { return false; }
inline bool is_never_optional(std::string_view /*name*/) { return false; }

}  // namespace ddp::train
