// The training step's interface to an optimizer.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/optimizer_config.h"
#include "trainer/config/param_groups.h"
#include "trainer/layout/tensor_layout.h"

namespace ddp::train {

/// One parameter of a model, or a shard of one, as the optimizer and the snapshot see it.
struct Parameter {
  std::string name;
  torch::Tensor tensor;
  ParameterRole role = ParameterRole::kOther;
  std::optional<TensorLayout> layout = std::nullopt;  ///< A shard's.
};

/// The parameters of a model that are trained, in the model's order, each of them in one group.
struct TrainedParameters {
  std::vector<Parameter> parameters;
  std::vector<ParameterGroup> groups;  ///< Their members are indices into `parameters`.
};

struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
  std::optional<TensorLayout> layout = std::nullopt;  ///< As its parameter's.
};

/// Returns the bfloat16 copy of a weight, which an update is to write along with the weight;
/// undefined if there is none.
using CopyOf = std::function<torch::Tensor(const torch::Tensor& weight)>;

class Optimizer {
 public:
  /// Zeroes the gradient of each parameter, or creates one, so that every step has the same
  /// arithmetic as the first.
  explicit Optimizer(TrainedParameters trained);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update; `learning_rate`: of a group whose lr_mult is 1. `found_inf` (float32 scalar on the
  /// parameters' device): if 1, there is no effect; no host sync. `scale` (likewise; undefined: 1):
  /// gradients are multiplied by it first, and may be left so. Returns whether the copies, too,
  /// hold the new values; an optimizer that cannot write them leaves them alone.
  bool step(double learning_rate, const torch::Tensor& found_inf, const torch::Tensor& scale = {},
            const CopyOf& copy_of = {});
  /// Zeroes gradients in place: they may be views into DDP's buckets. With `set_to_none` a backward
  /// pass makes them anew, which spares writing zeros and adding to them.
  void zero_grad(bool set_to_none = false);
  /// Creates zeros for the parameters that have no gradient.
  void complete_gradients();

  const std::vector<Parameter>& parameters() const { return trained_.parameters; }
  const std::vector<ParameterGroup>& groups() const { return trained_.groups; }
  std::vector<torch::Tensor> gradients() const;
  /// The state that a snapshot holds for each parameter besides its value, named
  /// `<parameter>.<state>` as in torch's optimizers. The tensors are the optimizer's own.
  virtual std::vector<NamedTensor> state() const = 0;

  /// The tensors that updates are computed on: parameters() themselves, unless copies of them are
  /// kept elsewhere.
  virtual const std::vector<Parameter>& masters() const { return parameters(); }
  /// Call after anything but step() has written parameters(): copies their values to masters().
  virtual void refresh_masters() {}
  /// Calls `write`, which changes the values of masters(), and copies them to parameters().
  virtual void write_masters(const std::function<void()>& write) { write(); }
  /// `found_inf` of the last step() on the device of masters().
  virtual torch::Tensor found_inf_of_masters(const torch::Tensor& found_inf) const {
    return found_inf;
  }

  /// Number of updates that took effect, a float32 scalar on the parameters' device.
  torch::Tensor& step_count() { return step_count_; }
  const torch::Tensor& step_count() const { return step_count_; }

 protected:
  /// Whether update() multiplies the gradients by `scale`, as it reads them.
  virtual bool scales_gradients() const { return false; }
  /// Returns whether it has written the copies.
  virtual bool update(double learning_rate, const torch::Tensor& found_inf,
                      const torch::Tensor& scale, const CopyOf& copy_of) = 0;

 private:
  TrainedParameters trained_;
  torch::Tensor step_count_;
};

/// Creates the optimizer selected by optimizer_config.name.
std::unique_ptr<Optimizer> make_optimizer(TrainedParameters trained, const OptimizerConfig& config);

/// Returns the factor that reduces gradients of global L2 norm `norm` (float32 scalar on their
/// device) to at most `max_norm`, as torch.nn.utils.clip_grad_norm_ does; undefined if that is 0:
/// no clipping. No host sync.
torch::Tensor clip_coefficient(const torch::Tensor& norm, double max_norm);

}  // namespace ddp::train
