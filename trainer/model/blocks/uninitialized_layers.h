// Layers without torch's initial weights: a model draws its own or loads others, and drawing takes
// longer than loading.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace ddp::train {

/// Without a bias.
inline torch::nn::Linear uninitialized_linear(int64_t in, int64_t out) {
  torch::nn::Linear linear(torch::nn::LinearOptions(1, 1).bias(false));
  linear->options.in_features(in).out_features(out);
  linear->weight.set_data(torch::empty({out, in}));
  return linear;
}

inline torch::nn::Embedding uninitialized_embedding(int64_t count, int64_t width) {
  return torch::nn::Embedding(
      torch::nn::EmbeddingOptions(count, width)._weight(torch::empty({count, width})));
}

}  // namespace ddp::train
