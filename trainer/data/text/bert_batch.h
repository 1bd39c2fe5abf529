// Batches of texts for BERT.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/batch.h"

namespace ddp::train {

/// The tokens around a text.
struct BertTokens {
  int32_t pad = 0;
  int32_t first = 0;  ///< [CLS]
  int32_t last = 0;   ///< [SEP]
};

inline constexpr int64_t kAroundText = 2;  ///< [CLS] and [SEP]

/// [CLS] text [SEP] and padding to the length of the longest: inputs, int64 [B, T], and the
/// attention mask. No targets.
Batch bert_batch(const std::vector<std::span<const int32_t>>& texts, const BertTokens& tokens,
                 bool pinned);

}  // namespace ddp::train
