// Muon: orthogonalised momentum for the groups of matrices that select it; AdamW for the
// rest.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "trainer/config/optimizer_config.h"
#include "trainer/optim/fused_optimizers.h"
#include "trainer/optim/optimizer.h"

namespace ddp::train {

/// After K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), with
/// the update scaled to AdamW's size (J. Liu et al., "Muon is scalable for LLM training", 2025:
/// torch.optim.Muon's adjust_lr_fn="match_rms_adamw"), so that one learning rate serves both.
/// State: momentum_buffer of its matrices, AdamW's of all others.
class Muon : public Optimizer {
 public:
  Muon(TrainedParameters trained, const OptimizerConfig& config);

  std::vector<NamedTensor> state() const override;

 protected:
  bool update(double learning_rate, const torch::Tensor& found_inf, const torch::Tensor& scale,
              const CopyOf& copy_of) override;

 private:
  struct Matrix {
    Parameter parameter;
    GroupOptions options;
    torch::Tensor momentum_buffer;
  };
  void update_matrix(const Matrix& matrix, double learning_rate, const torch::Tensor& skip);

  OptimizerConfig config_;
  std::vector<Matrix> matrices_;
  std::unique_ptr<Adam> rest_;  ///< Null if Muon updates every parameter.
};

/// The orthogonal factor of `matrix` [m, n], roughly: five steps of the quintic Newton-Schulz
/// iteration in bfloat16, singular values end between 0.7 and 1.2.
torch::Tensor orthogonalised(const torch::Tensor& matrix);

}  // namespace ddp::train
