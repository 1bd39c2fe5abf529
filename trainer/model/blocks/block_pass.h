// The inputs that all blocks of a pass share.
#pragma once

#include <torch/torch.h>

#include <cstddef>

#include "trainer/model/blocks/key_value_cache.h"
#include "trainer/model/ops/cpu/kernels.h"

namespace ddp::train {

class RouterLoad;

struct BlockPass {
  cpu::Places rows{};  ///< The rows of a sequence that this rank holds between divided layers.
  KeyValueCache* cache = nullptr;  ///< Null: no earlier tokens.
  std::size_t layer = 0;           ///< The block's index, in the model and in the cache.
  int64_t window = 0;              ///< The layer's: how many tokens each may see; 0: all.
  torch::Tensor mask{};            ///< As TokenContext::mask() of the window.
  torch::Tensor cos{}, sin{};      ///< For rotary positions, [.., T, R / 2]: the first R of D turn.
  RouterLoad* load = nullptr;      ///< What routers of experts have chosen; null: not wanted.

  /// Whether each row is one text from its start.
  bool is_whole_text() const { return cache == nullptr && !mask.defined(); }
};

}  // namespace ddp::train
