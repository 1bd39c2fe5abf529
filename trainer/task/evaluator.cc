#include "trainer/task/evaluator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "trainer/data/data_loader.h"
#include "trainer/optim/amp.h"
#include "trainer/parallel/device/device_wait.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// [batches, k] -> k sums, added in the order of the batches.
std::vector<double> added_up(const torch::Tensor& sums) {
  const auto rows = sums.accessor<double, 2>();
  std::vector<double> total(static_cast<std::size_t>(sums.size(1)), 0.0);
  for (int64_t i = 0; i < rows.size(0); ++i) {
    for (int64_t k = 0; k < rows.size(1); ++k) total[static_cast<std::size_t>(k)] += rows[i][k];
  }
  return total;
}

std::vector<double> one_after_another(const torch::Tensor& numbers) {
  const auto flat = numbers.contiguous();
  const auto* const first = flat.const_data_ptr<double>();
  return {first, first + flat.numel()};
}

ConfusionMatrix confusion_of(std::vector<std::string> classes, const torch::Tensor& counts_KK) {
  const auto* const first = counts_KK.const_data_ptr<int64_t>();
  return {std::move(classes), {first, first + counts_KK.numel()}};
}

}  // namespace

std::optional<Evaluation> evaluate(Task& task, const SampleSource& samples, int64_t batch_size,
                                   ProcessGroup& group, torch::Device device,
                                   std::optional<torch::ScalarType> amp_dtype,
                                   const std::function<bool()>& go_on,
                                   const std::function<void()>& before_wait,
                                   std::optional<int64_t> most_batches, IdleRanks idle,
                                   ProcessGroup* all_ranks) {
  ProcessGroup& all = all_ranks != nullptr ? *all_ranks : group;
  const torch::NoGradGuard no_grad;
  const bool was_training = task.model().is_training();
  task.model().eval();
  const int64_t rows = samples.size();
  const int64_t full = (rows + batch_size - 1) / batch_size;
  const int64_t batches = std::min(full, most_batches.value_or(full));
  const bool keeps = task.keeps_samples();
  auto sums = torch::zeros({batches, keeps ? batch_size : 1, task.sums()}, torch::kFloat64);
  const auto first_of = [&](int64_t batch) { return batch * full / batches * batch_size; };
  std::vector<std::string> classes = task.classes();
  const auto count = static_cast<int64_t>(classes.size());
  auto confusion_KK = torch::zeros({count, count}, torch::kInt64);
  bool stopped = false;
  for (int64_t round = 0; round * group.size() < batches && !stopped; ++round) {
    auto wish = all.all_reduce_max_async(go_on() ? 0 : 1);  // on its way while we compute
    const int64_t i = round * group.size() + group.rank();
    if (i < batches || idle == IdleRanks::kJoin) {
      const int64_t first = i < batches ? first_of(i) : 0;
      const Batch batch =
          batch_of(samples, first, std::min(batch_size, rows - first), device.is_cuda());
      const Autocast autocast(device.type(), amp_dtype);
      const BatchSums of_batch = task.evaluate(batch.to(device));
      if (i < batches) {
        const auto numbers = to_host(of_batch.sums.to(torch::kFloat64)).view({-1, task.sums()});
        sums[i].slice(0, 0, numbers.size(0)).copy_(numbers);
        if (of_batch.confusion.defined()) confusion_KK += to_host(of_batch.confusion);
      }
    }
    before_wait();
    stopped = wish.wait() != 0;
  }
  task.model().train(was_training);
  if (stopped) return std::nullopt;
  all.all_reduce_sum(sums);  // each entry is non-zero on one rank only: exact
  if (count > 0) all.all_reduce_sum(confusion_KK);
  sums = sums.flatten(0, 1);
  if (keeps && batches > 0) {  // only the last batch may be short
    const int64_t last = std::min(batch_size, rows - first_of(batches - 1));
    sums = sums.slice(0, 0, (batches - 1) * batch_size + last);
  }
  const auto values = keeps ? one_after_another(sums) : added_up(sums);
  return Evaluation{task.metrics(values), confusion_of(std::move(classes), confusion_KK)};
}

std::string name_in_set(const std::string& set, const std::string& metric) {
  return set + "_" + metric;
}

void add_set(std::optional<Evaluation>& all, const std::string& set,
             const std::optional<Evaluation>& of_set) {
  if (!of_set) all.reset();
  if (!all) return;
  for (const auto& [name, value] : of_set->metrics)
    all->metrics.emplace_back(name_in_set(set, name), value);
}

void check_metric_name(const std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  throw UserError(
      fmt::format("trainer_config.metric_for_best_model: '{}' is no metric of this task; choose "
                  "one of {}",
                  name, fmt::join(names, ", ")));
}

std::string score_basis(const SampleSource& samples, const TrainerConfig& config) {
  return fmt::format("{} over {} samples{} of {}", config.metric_for_best_model, samples.size(),
                     config.eval_iters ? fmt::format(", {} batches", *config.eval_iters) : "",
                     samples.fingerprint());
}

double score_of(const Metrics& metrics, const std::string& name) {
  const auto found = std::find_if(metrics.begin(), metrics.end(),
                                  [&](const auto& metric) { return metric.first == name; });
  TORCH_CHECK(found != metrics.end(), "no metric ", name);
  const bool less_is_better = !name.starts_with("f1/") &&  // of a label, whatever its name is
                              (name.ends_with("loss") || name.ends_with("perplexity") ||
                               name.ends_with("mse") || name.find("bits_per") != std::string::npos);
  return less_is_better ? found->second : -found->second;
}

}  // namespace ddp::train
