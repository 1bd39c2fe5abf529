// A model of three units and a root, whose parameters are divided, as each rank sees it.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/model/blocks/model_unit.h"
#include "trainer/parallel/strategy/fully_sharded.h"

namespace ddp::train::test {

class Layer : public ModelUnit {
 public:
  Layer() { linear = register_module("linear", torch::nn::Linear(kWidth, kWidth)); }
  torch::Tensor forward(const torch::Tensor& x) {
    return with_weights(x, [&](const torch::Tensor& input) {
      if (throws) throw std::runtime_error("a layer failed");
      return torch::gelu(linear(input));
    });
  }

  static constexpr int64_t kWidth = 67;  // its squares do not divide by anything
  torch::nn::Linear linear{nullptr};
  bool throws = false;
};

/// The same weights for the same `seed`.
struct Layers {
  explicit Layers(int seed) {
    torch::manual_seed(seed);
    for (int i = 0; i < 3; ++i) layers.push_back(std::make_shared<Layer>());
    head = torch::nn::Linear(Layer::kWidth, 3);
  }
  torch::Tensor loss(const torch::Tensor& x) {
    auto y = x;
    for (const auto& layer : layers) y = layer->forward(y);
    return head(y).square().sum();
  }
  /// Parameters of the layers in order, then of the head.
  std::vector<ShardedDataParallel::Parameter> parameters() const {
    std::vector<ShardedDataParallel::Parameter> all;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      for (const auto& tensor : layers[i]->parameters())
        all.push_back({std::to_string(all.size()), tensor});
    }
    for (const auto& tensor : head->parameters())
      all.push_back({std::to_string(all.size()), tensor});
    return all;
  }
  std::unique_ptr<FullyShardedDataParallel> divided(ProcessGroup& group) {
    const std::vector<std::vector<std::size_t>> units = {{0, 1}, {2, 3}, {4, 5}};
    auto sync = std::make_unique<FullyShardedDataParallel>(parameters(), units, group, group.size(),
                                                           FirstValues::kOfRankZero);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      layers[i]->set_hooks({[all = sync.get(), i] { all->before_forward(i); },
                            [all = sync.get(), i](const torch::Tensor& x, const torch::Tensor& y) {
                              all->after_forward(i, x, y);
                            }});
    }
    return sync;
  }
  /// How many of the parameters of each layer, and of the head, have memory.
  std::vector<int> in_memory() const {
    std::vector<int> counts(layers.size() + 1, 0);
    const auto all = parameters();
    for (std::size_t i = 0; i < all.size(); ++i)
      counts[i / 2] += all[i].tensor.storage().nbytes() > 0;
    return counts;
  }

  std::vector<std::shared_ptr<Layer>> layers;
  torch::nn::Linear head{nullptr};
};

}  // namespace ddp::train::test
