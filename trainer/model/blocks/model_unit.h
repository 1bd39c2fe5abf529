// Parts of a model whose weights need not be in memory while unused: the blocks of a transformer. A
// strategy that divides weights among ranks gathers them around each use.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <utility>

namespace ddp::train {

/// Hooks around the computation of a unit, in training, evaluation and generation alike.
struct UnitHooks {
  /// The unit's weights are in memory on return.
  std::function<void()> before_forward;
  /// After the unit has turned `x` into `y`; both are undefined if it threw.
  std::function<void(const torch::Tensor& x, const torch::Tensor& y)> after_forward;
};

/// Base class of such a part. Everything that reads its weights goes through with_weights(). The
/// units of a model follow each other, and weights outside of them are used before the first one or
/// after the last one.
class ModelUnit : public torch::nn::Module {
 public:
  void set_hooks(UnitHooks hooks) { hooks_ = std::move(hooks); }
  /// Without hooks, the computation need not go through with_weights().
  bool has_hooks() const { return static_cast<bool>(hooks_.before_forward); }

 protected:
  /// Returns `forward(x)`.
  template <class Forward>
  torch::Tensor with_weights(const torch::Tensor& x, const Forward& forward) {
    if (!has_hooks()) return forward(x);
    hooks_.before_forward();
    torch::Tensor y;
    try {
      y = forward(x);
    } catch (...) {
      hooks_.after_forward({}, {});
      throw;
    }
    hooks_.after_forward(x, y);
    return y;
  }

 private:
  UnitHooks hooks_;
};

}  // namespace ddp::train
