// What a model keeps of the tokens it has read, so that the next ones need no second pass over
// them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace ddp::train {

/// Keys and values of every layer for the first `length` of `capacity` positions. Rows of different
/// lengths end at the same position: shorter ones begin with padding. B batch, H heads, D = C / H.
struct KeyValueCache {
  struct Layer {
    torch::Tensor keys_BHTD;  ///< [B, H, 64, 128, .. up to capacity, D], as the text grows.
    torch::Tensor values_BHTD;
  };

  /// `padding_B`: positions at the start of each row that hold no token, int64 on the model's
  /// device; undefined when there are none.
  KeyValueCache(int64_t n_layer, int64_t capacity, torch::Tensor padding_B = {});

  /// Positions within the text of `count` tokens after the present ones, int64 [T] or [B, T].
  torch::Tensor positions(int64_t count, torch::Device device) const;
  /// Which keys those tokens may see, bool [B or 1, 1, T, length + T]; undefined: all before them.
  torch::Tensor mask(int64_t count) const;

  int64_t capacity;
  int64_t length = 0;  ///< May be lowered: what is beyond it is forgotten.
  torch::Tensor padding_B;
  std::vector<Layer> layers;
};

/// Writes [B, H, T, D] after the `start` positions of a layer's keys or values. Returns all up to
/// there, [B, H, start + T, D].
torch::Tensor add_to_cache(torch::Tensor& kept_BHTD, const torch::Tensor& new_BHTD, int64_t start,
                           int64_t capacity);

}  // namespace ddp::train
