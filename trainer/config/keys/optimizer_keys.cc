#include "trainer/config/keys/key_rows.h"

namespace ddp::train {

std::vector<Field> optimizer_fields() {
  return {
      {DDP_KEY(optimizer, name),
       .meaning =
           "Optimizer; muon updates the hidden layers' matrices and leaves the rest to adamw."},
      {DDP_KEY(optimizer, learning_rate), .range = kAbove0, .meaning = "Peak learning rate."},
      {DDP_KEY(optimizer, lr_schedule),
       .meaning = "Learning rate schedule after the warm-up; wsd (warmup, stable, decay) decays "
                  "only at the end, one_cycle has its own warm-up."},
      {DDP_KEY(optimizer, warmup_steps), .range = kStepCountOr0, .unit = "steps",
       .meaning = "Steps of linear warm-up from 0 to learning_rate."},
      {DDP_KEY(optimizer, min_lr), .range = kAtLeast0,
       .meaning = "Learning rate at the end of the decay."},
      {DDP_KEY(optimizer, decay_steps), .range = kStepCount, .unit = "steps",
       .null_means = NullMeans::kNotGiven, .default_text = "the whole run; wsd: its last tenth",
       .meaning = "Step at which min_lr is reached; for wsd the length of the decay at the end of "
                  "the run."},
      {DDP_KEY(optimizer, lr_power), .range = kAbove0,
       .meaning = "Exponent of lr_schedule=polynomial."},
      {DDP_KEY(optimizer, weight_decay), .range = kAtLeast0,
       .meaning = "Weight decay; applied to the weights of linear layers only."},
      {DDP_KEY(optimizer, betas), .range = kProbability,
       .meaning = "beta1 and beta2 of adamw and adam."},
      {DDP_KEY(optimizer, eps), .range = kAbove0, .meaning = "Epsilon of adamw and adam."},
      {DDP_KEY(optimizer, momentum), .range = kProbability,
       .meaning = "Momentum of sgd and muon; auto: 0 for sgd, 0.95 for muon."},
      {DDP_KEY(optimizer, nesterov), .meaning = "Nesterov momentum for sgd; muon always has it."},
  };
}

}  // namespace ddp::train
