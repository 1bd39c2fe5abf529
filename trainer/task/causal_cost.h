// Estimates the cost of training a language model, by texts or by preferences, from its
// configuration and the size of its vocabulary.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/model/causal_architecture.h"
#include "trainer/task/task_cost.h"

namespace ddp::train {

struct Config;

class CausalCost : public TaskCost {
 public:
  /// Refers to `config`. Throws UserError for a model that this trainer does not have.
  CausalCost(const Config& config, int64_t vocab_size)
      : config_(config), architecture_(causal_architecture(config)), vocab_size_(vocab_size) {}

  /// At most; how long pairs are depends on the data.
  int64_t units_per_sample() const override;
  std::string_view unit() const override { return "tokens"; }
  std::vector<ParameterPart> parameter_parts() const override;
  double flops_per_unit() const override;
  std::string_view flops_formula() const override { return architecture_.flops_formula(); }
  WeightsLayout layout() const override;
  void check_division(const Config& config) const override;
  std::vector<MemoryItem> memory_items(const Config& config,
                                       const ComputePlace& place) const override;

 private:
  bool of_pairs() const;
  int64_t rows_per_sample() const { return of_pairs() ? 2 : 1; }

  const Config& config_;
  const CausalArchitecture& architecture_;
  int64_t vocab_size_;
};

}  // namespace ddp::train
