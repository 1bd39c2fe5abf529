// optimizer_config: the update of the weights, with options for groups of parameters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/value_types.h"

namespace ddp::train {

enum class OptimizerName { kAdamW, kAdam, kSgd, kMuon };

/// Facts about an optimizer, for the configuration and estimates.
struct OptimizerFacts {
  std::string_view name;
  int states = 0;               ///< Tensors of a parameter's shape that it keeps for each.
  double momentum = 0.0;        ///< The value of `momentum: auto`.
  bool needs_momentum = false;  ///< Keeps none of them if momentum is 0.
};

/// In the order of OptimizerName.
inline constexpr OptimizerFacts kOptimizers[] = {
    {"adamw", 2}, {"adam", 2}, {"sgd", 1, 0.0, true}, {"muon", 1, 0.95}};

constexpr const OptimizerFacts& facts_of(OptimizerName name) {
  return kOptimizers[static_cast<std::size_t>(name)];
}
inline Names names_of(OptimizerName) {
  Names names;
  for (const OptimizerFacts& facts : kOptimizers) names.push_back(facts.name);
  return names;
}

/// An entry of param_groups: parameters, selected by name, with other training options. Options
/// that are not set keep their defaults.
struct ParamGroup {
  std::vector<std::string> patterns;       ///< Shell patterns of parameter names.
  double lr_mult = 1.0;                    ///< Times the learning rate of each step.
  std::optional<double> weight_decay;      ///< Instead of the default's.
  std::optional<OptimizerName> optimizer;  ///< muon or adamw, in a run with muon.
  bool frozen = false;                     ///< Not trained at all.
};

enum class LrSchedule { kConstant, kLinear, kPolynomial, kCosine, kWsd, kOneCycle };
inline Names names_of(LrSchedule) {
  return {"constant",
          "linear",
          "polynomial",
          "cosine",
          "wsd",
          "one_cycle",
          "constant_with_warmup=constant",
          "cosine_with_min_lr=cosine",
          "warmup_stable_decay=wsd"};
}

enum class StateBits { k32, k8 };
inline Names names_of(StateBits) { return {"32", "8"}; }

struct OptimizerConfig {
  OptimizerName name = OptimizerName::kAdamW;
  double learning_rate = 3e-4;  ///< The largest one of the schedule.
  LrSchedule lr_schedule = LrSchedule::kConstant;
  int64_t warmup_steps = 0;            ///< Optimizer steps from 0 up to learning_rate.
  double warmup_ratio = 0.0;           ///< The same as a share of the run.
  std::optional<int64_t> decay_steps;  ///< Step at which the decay ends; of wsd: its length.
  double min_lr = 0.0;                 ///< Where the decay ends.
  double lr_power = 1.0;               ///< For the polynomial schedule.
  double weight_decay = 0.1;           ///< Applied to the weights of linear layers only.
  bool decay_embeddings = false;       ///< And to embeddings, as nanoGPT and transformers do.
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  AutoNumber momentum;                    ///< For sgd and muon.
  bool nesterov = false;                  ///< For sgd.
  StateBits state_bits = StateBits::k32;  ///< For adamw and adam.
  std::vector<ParamGroup> param_groups;   ///< The first match counts.
};

/// Elements that share a scale where state_bits is 8.
inline constexpr int64_t kStateBlock = 256;

/// `auto` resolved: the optimizer's own default.
inline double momentum_of(const OptimizerConfig& config) {
  return config.momentum.automatic ? facts_of(config.name).momentum : config.momentum.value;
}

}  // namespace ddp::train
