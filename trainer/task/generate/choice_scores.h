// Multiple choice by log-likelihood, with the formulas of lm-eval.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/data/text/choice_suite.h"
#include "trainer/model/causal_model.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// A share of items, with its standard error: that of a mean, by the sample's standard deviation;
/// none of a single item.
struct ItemShare {
  double mean = 0.0;
  std::optional<double> stderr_of_mean;
};

struct ChoiceScores {
  ItemShare acc;       ///< The right choice has the greatest log-likelihood.
  ItemShare acc_norm;  ///< The same, divided by the choice's characters.
};

/// `log_likelihoods`: of each item's choices, in nats. The first of equal ones is chosen.
ChoiceScores scores_of(const ChoiceSuite& suite,
                       const std::vector<std::vector<double>>& log_likelihoods);

/// The sum of the log-likelihoods, in nats, of each choice's tokens after its context;
/// contexts longer than the model's lose their start. `batch_size` choices at a time, divided
/// between the ranks; equal on all of them. Puts the model into eval mode. Throws UserError with
/// file and line: text that cannot be encoded, a choice longer than the model's context.
std::vector<std::vector<double>> choice_log_likelihoods(CausalModel& model,
                                                        const Tokenizer& tokenizer,
                                                        const ChoiceSuite& suite,
                                                        int64_t batch_size, ProcessGroup& group);

}  // namespace ddp::train
