// What a model keeps of the tokens it has read, so that the next ones need no second pass over
// them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace ddp::train {

/// Keys and values of every layer for the first `length` of `capacity` positions. Rows of different
/// lengths end at the same position: shorter ones begin with padding. B batch, H heads, D = C / H.
///
/// With `length_1`, as on a GPU, a pass of one token takes its place from there: it writes at that
/// position and attends to all of `room` with a mask. Its launches are then the same for each
/// token, but for make_room(), and can be recorded as a CUDA graph.
struct KeyValueCache {
  struct Layer {
    torch::Tensor keys_BHTD;  ///< [B, H, room, D].
    torch::Tensor values_BHTD;
  };

  /// `padding_B`: positions at the start of each row that hold no token, int64 on the model's
  /// device; undefined when there are none.
  KeyValueCache(int64_t n_layer, int64_t capacity, torch::Tensor padding_B = {});

  /// Before a pass of `count` tokens: room for them.
  void make_room(int64_t count);
  /// After it.
  void advance(int64_t count);
  /// Forgets what is beyond `to` positions.
  void shorten(int64_t to);

  /// Positions within the text of `count` tokens after the present ones, int64 [T] or [B, T].
  torch::Tensor positions(int64_t count, torch::Device device) const;
  /// Which keys those tokens may see: bool [B or 1, 1, T, length + T]; of one token by `length_1`
  /// float32 [B or 1, 1, 1, room], to be added to the scores; undefined: all before them. `window`:
  /// see TokenContext.
  torch::Tensor mask(int64_t count, torch::Device device, int64_t window = 0) const;
  /// Writes [B, H, T, D], which come next, to a layer's keys or values. Returns those that mask()
  /// is for.
  torch::Tensor add(torch::Tensor& kept_BHTD, const torch::Tensor& new_BHTD) const;

  int64_t capacity;
  int64_t length = 0;
  int64_t room = 0;  ///< 64, 128, .. up to capacity, as the text grows; with `length_1` from 256.
  torch::Tensor length_1{};  ///< `length` on the device, int64 [1]; undefined: the host's alone.
  torch::Tensor padding_B;
  std::vector<Layer> layers;

 private:
  bool by_device(int64_t count) const { return count == 1 && length_1.defined(); }
};

}  // namespace ddp::train
