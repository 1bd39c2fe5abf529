// bfloat16 copies of weights, for products under autocast.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ddp::train {

/// The copies that the micro-batches of a training step share. Each is created when a product first
/// needs it, and renewed in every further step if its weight is trained and no update wrote it
/// along with its weight. Owned by the trainer.
class WeightCopies {
 public:
  /// While it exists, weights must not change and bfloat16_copy() shares copies, in all threads. At
  /// most one at a time.
  class Step {
   public:
    /// Renews copies when products need them if weights are `on_their_way`, else all of them at
    /// once.
    Step(WeightCopies& copies, bool on_their_way);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
  };

  /// The copy of `weight`, without padding; undefined if there is none. Not within a Step.
  torch::Tensor of(const torch::Tensor& weight) const;
  /// The next step reuses the copies of `weights` unless an operation of torch changes those in
  /// between. A collective goes unnoticed: call forget() after it.
  void written(const std::vector<torch::Tensor>& weights);
  void forget() { copies_.clear(); }

 private:
  friend torch::Tensor bfloat16_copy(const torch::Tensor& weight, int64_t padding);

  struct Copy {
    torch::Tensor weight;
    torch::Tensor values;  ///< With padding.
    /// The weight's place and version when an update wrote both.
    std::optional<std::pair<const void*, uint32_t>> written;
    bool outdated = false;

    torch::Tensor without_padding() const { return values.narrow(0, 0, weight.size(0)); }
  };
  void refresh(bool on_their_way);
  torch::Tensor shared(const torch::Tensor& weight, int64_t padding);

  std::mutex mutex_;
  std::unordered_map<c10::TensorImpl*, Copy> copies_;
};

/// `weight` in bfloat16, followed by `padding` rows of zeros; without a gradient. Made for the
/// caller alone outside of a WeightCopies::Step, or where the weight is not a float32 parameter.
torch::Tensor bfloat16_copy(const torch::Tensor& weight, int64_t padding = 0);

}  // namespace ddp::train
