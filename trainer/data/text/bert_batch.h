// Batches of texts for BERT.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/batch.h"

namespace ddp::train {

/// The tokens around texts.
struct BertTokens {
  int32_t pad = 0;
  int32_t first = 0;         ///< [CLS]
  int32_t last = 0;          ///< [SEP]
  int64_t separators = 1;    ///< As many of `last` are between the texts of a pair.
  bool typed_pairs = false;  ///< The model tells the tokens of the second text by their type.
};

/// What separates the texts of a pair.
inline std::vector<int32_t> between_texts(const BertTokens& tokens) {
  return std::vector<int32_t>(static_cast<std::size_t>(tokens.separators), tokens.last);
}

inline constexpr int64_t kAroundText = 2;  ///< [CLS] and [SEP]
/// int64 [B, T]: 0 for the first text of a pair and padding, 1 for the second.
inline constexpr const char* kTokenTypes = "token_types";

/// [CLS] text [SEP] and padding to the length of the longest: inputs, int64 [B, T], and the
/// attention mask. No targets. `seconds`: where the second text of each pair begins among its
/// tokens; with typed_pairs the batch has token types then.
Batch bert_batch(const std::vector<std::vector<int32_t>>& texts, const BertTokens& tokens,
                 bool pinned, std::span<const int64_t> seconds = {});

}  // namespace ddp::train
