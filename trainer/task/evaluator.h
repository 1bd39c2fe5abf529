// A task's metrics over all evaluation samples: each once, all ranks at work, the same digits for
// any number of ranks.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/sample_source.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/task/task.h"

namespace ddp::train {

struct Evaluation {
  Metrics metrics;
  ConfusionMatrix confusion;  ///< Empty for a task without classes.
};

/// What ranks do for which there is no batch in the last round.
enum class IdleRanks {
  kWait,
  kJoin  ///< Evaluate the first one once more, which does not count: the model's passes are
         ///< collectives.
};

/// Runs in eval mode and without gradient synchronisation; the model is in its former mode
/// afterwards.
///
/// Batches are cut by position, the same ones for any number of ranks, and dealt out in turn; each
/// gives one vector of float32 sums, and all are added in order of position in float64 on every
/// rank; confusions are whole numbers, which need no order.
///
/// With `most_batches`, those are spread evenly over all.
///
/// `go_on` is called before each batch; if it returns false on any rank, all ranks skip the rest
/// after their present batch and get nothing. `before_wait` is called before the ranks wait for
/// each other.
///
/// `all_ranks`: where a copy of the model is divided between ranks, the ranks of all copies;
/// `group` then has one of each. Null: those of `group`.
std::optional<Evaluation> evaluate(
    Task& task, const SampleSource& samples, int64_t batch_size, ProcessGroup& group,
    torch::Device device, std::optional<torch::ScalarType> amp_dtype,
    const std::function<bool()>& go_on = [] { return true; },
    const std::function<void()>& before_wait = [] {}, std::optional<int64_t> most_batches = {},
    IdleRanks idle = IdleRanks::kWait, ProcessGroup* all_ranks = nullptr);

/// The name of a metric of Task::evaluation_sets(): wiki_loss.
std::string name_in_set(const std::string& set, const std::string& metric);
/// Appends the metrics of a set to `all`, by name_in_set(). If either was broken off, so is `all`.
void add_set(std::optional<Evaluation>& all, const std::string& set,
             const std::optional<Evaluation>& of_set);

/// Throws UserError that lists `names`, a task's, when trainer_config.metric_for_best_model is
/// none of them.
void check_metric_name(const std::vector<std::string>& names, const std::string& name);

/// What the scores of an evaluation depend on besides the model: the metric and the samples. Scores
/// of different bases are not comparable.
std::string score_basis(const SampleSource& samples, const TrainerConfig& config);

/// The metric of that name, one of `metrics`; negated when more of it is better: less is better.
double score_of(const Metrics& metrics, const std::string& name);

}  // namespace ddp::train
