// Computes a task's metrics over all evaluation samples, each once, distributed over all ranks;
// bitwise identical for any number of ranks.
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

/// What ranks without a batch do in the last round.
enum class IdleRanks {
  kWait,
  kJoin  ///< Evaluate the first batch again and discard the result: the model's passes are
         ///< collectives.
};

/// Runs in eval mode and without gradient synchronization; restores the model's mode
/// afterwards.
///
/// Batches are cut by position, the same ones for any number of ranks, and assigned round-robin.
/// Each yields one vector of float32 sums; every rank adds all of them in order of position in
/// float64. Confusion counts are integers, whose order is irrelevant.
///
/// `most_batches`: evaluates at most so many, spread evenly over all.
///
/// `go_on` is called before each batch; if it returns false on any rank, all ranks stop after
/// their current batch and return nullopt. `before_wait` is called before the ranks wait for each
/// other.
///
/// `all_ranks`: if copies of the model are divided among ranks, the ranks of all copies; `group`
/// then has one rank of each. Null: the ranks of `group`.
std::optional<Evaluation> evaluate(
    Task& task, const SampleSource& samples, int64_t batch_size, ProcessGroup& group,
    torch::Device device, std::optional<torch::ScalarType> amp_dtype,
    const std::function<bool()>& go_on = [] { return true; },
    const std::function<void()>& before_wait = [] {}, std::optional<int64_t> most_batches = {},
    IdleRanks idle = IdleRanks::kWait, ProcessGroup* all_ranks = nullptr);

/// Name of a metric of one of Task::evaluation_sets(), such as wiki_loss.
std::string name_in_set(const std::string& set, const std::string& metric);
/// Appends the metrics of a set to `all`, by name_in_set(). If either is nullopt, so is `all`.
void add_set(std::optional<Evaluation>& all, const std::string& set,
             const std::optional<Evaluation>& of_set);

/// Throws UserError that lists `names`, the task's metrics, if trainer_config.metric_for_best_model
/// is not among them.
void check_metric_name(const std::vector<std::string>& names, const std::string& name);

/// Identifies what an evaluation's scores depend on besides the model: the metric and the samples.
/// Scores with different bases are not comparable.
std::string score_basis(const SampleSource& samples, const TrainerConfig& config);

/// Returns the metric `name` of `metrics`, negated if higher is better: lower scores are better.
double score_of(const Metrics& metrics, const std::string& name);

}  // namespace ddp::train
