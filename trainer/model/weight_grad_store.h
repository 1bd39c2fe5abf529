// Gradients of weights, computed apart from the gradients of inputs: the second half of a backward
// pass, which a pipeline stage does when it would wait (the WeightGradStore of Qi et al., "Zero
// Bubble Pipeline Parallelism", 2024).
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <vector>

namespace ddp::train {

/// The gradient of the weight of a linear layer, not computed yet.
struct WeightGradient {
  /// From `dy` [M, N] and `x` [M, K] to [N, K].
  using Product = torch::Tensor (*)(const torch::Tensor& dy, const torch::Tensor& x);

  /// In the type of the weight.
  torch::Tensor compute() const;

  torch::Tensor weight;  ///< A leaf.
  torch::Tensor dy;      ///< [.., N]
  torch::Tensor x;       ///< [.., K]
  Product product;
};

/// While one exists, backward passes leave the weight gradients of linear layers to it; there is at
/// most one in a process. Gradients of biases, norms and embeddings are computed in the backward
/// pass as ever. Until a gradient is computed, the store keeps the layer's input and the gradient
/// of its output.
///
/// Created and used by the training thread. put() is called by the thread of the backward pass,
/// during which the training thread waits.
class WeightGradStore {
 public:
  WeightGradStore();
  ~WeightGradStore();
  WeightGradStore(const WeightGradStore&) = delete;
  WeightGradStore& operator=(const WeightGradStore&) = delete;

  /// The current store, or nullptr.
  static WeightGradStore* current();

  /// Before the backward pass of `micro_batch`, whose forward pass ran with the store as well.
  void begin(int64_t micro_batch);
  void put(WeightGradient gradient);
  /// The second half of the backward pass of `micro_batch`: computes what the first half left, adds
  /// it to the `.grad` of the weights, as a backward pass without hooks, and frees what a product
  /// needed at once. Throws unless that first half began, and if its second was computed before.
  void compute(int64_t micro_batch);
  /// Whether each first half has had its second.
  bool empty() const { return left_.empty(); }

 private:
  std::map<int64_t, std::vector<WeightGradient>> left_;
  int64_t micro_batch_ = -1;
};

/// The gradient of `weight`, for the backward function of a linear layer; undefined if it was left
/// to the store.
torch::Tensor weight_gradient(const torch::Tensor& weight, const torch::Tensor& dy,
                              const torch::Tensor& x, WeightGradient::Product product);

/// x weight^T + bias; `bias` may be undefined. With a store the same
/// numbers, by a product whose backward function asks weight_gradient().
torch::Tensor linear_layer(const torch::Tensor& x, const torch::Tensor& weight,
                           const torch::Tensor& bias = {});

}  // namespace ddp::train
