// The context of the tokens of one pass: the text in a cache, or other documents in their rows.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "trainer/model/blocks/key_value_cache.h"

namespace ddp::train {

/// Without a cache and without positions each row is one text from its start. A pass has at most
/// one of the two.
struct TokenContext {
  KeyValueCache* cache = nullptr;  ///< The tokens follow those in it and are added to it.
  /// int64 [B, T]: rows of several documents, each position counted from its document's start;
  /// transformers calls them position_ids. No position sees another document.
  torch::Tensor positions_BT{};
  /// Virtual tokens at the start of each row, after its padding; every document sees them.
  int64_t prompt = 0;

  /// Positions within the text of the pass's T tokens, int64 [T] or [B, T].
  torch::Tensor positions(const torch::Tensor& idx_BT) const;
  /// Which keys the T tokens may see, bool [B, 1, T, S]; undefined: all up to their own. A mask of
  /// packed documents takes B T T bytes, and attention a float of it for each. `window`: how many
  /// tokens each may see, itself included; 0: all.
  torch::Tensor mask(const torch::Tensor& idx_BT, int64_t window = 0) const;
};

}  // namespace ddp::train
