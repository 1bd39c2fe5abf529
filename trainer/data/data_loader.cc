#include "trainer/data/data_loader.h"

#include <algorithm>

namespace ddp::train {
namespace {

constexpr int64_t kBatchesAheadPerWorker = 2;  // torch's prefetch_factor

torch::Tensor empty_tokens(int64_t rows, int64_t columns, bool pinned) {
  return torch::empty({rows, columns}, torch::TensorOptions(torch::kInt64).pinned_memory(pinned));
}

}  // namespace

DataLoader::DataLoader(TrainingWindows windows, const DistributedSampler& sampler, DataCursor start,
                       const Options& options)
    : windows_(windows),
      sampler_(sampler),
      options_(options),
      next_task_{sampler.normalized(start), 0},
      batches_(
          options.workers, options.workers * kBatchesAheadPerWorker, [this] { return take_task(); },
          [this](const Task& task) { return make_batch(task); }) {}

DataLoader::Task DataLoader::take_task() {
  const Task task = next_task_;
  if (++next_task_.micro == options_.micro_batches) next_task_ = {sampler_.next(task.cursor), 0};
  return task;
}

Batch DataLoader::make_batch(const Task& task) const {
  const int64_t rows = options_.batch_size;
  const int64_t columns = windows_.block_size;
  Batch batch{empty_tokens(rows, columns, options_.pin_memory),
              empty_tokens(rows, columns, options_.pin_memory)};
  auto* inputs = batch.inputs.mutable_data_ptr<int64_t>();
  auto* targets = batch.targets.mutable_data_ptr<int64_t>();
  const Permutation order = sampler_.order(task.cursor.epoch);
  const int64_t global_micro = task.micro * options_.world_size + options_.rank;
  const int64_t first = task.cursor.position + global_micro * rows;
  for (int64_t row = 0; row < rows; ++row) {
    const auto start = static_cast<std::size_t>(order(first + row) * windows_.stride);
    const auto window = windows_.tokens.subspan(start, static_cast<std::size_t>(columns) + 1);
    std::copy(window.begin(), window.end() - 1, inputs + row * columns);
    std::copy(window.begin() + 1, window.end(), targets + row * columns);
  }
  return batch;
}

Batch evaluation_batch(const EvaluationWindows& windows, int64_t first, int64_t count) {
  const int64_t columns = windows.block_size;
  Batch batch{torch::zeros({count, columns}, torch::kInt64),
              torch::full({count, columns}, -1, torch::kInt64)};
  auto* inputs = batch.inputs.mutable_data_ptr<int64_t>();
  auto* targets = batch.targets.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < count; ++row) {
    const auto start = static_cast<std::size_t>((first + row) * columns);
    const auto length =
        std::min<std::size_t>(static_cast<std::size_t>(columns), windows.tokens.size() - 1 - start);
    const auto window = windows.tokens.subspan(start, length + 1);
    std::copy(window.begin(), window.end() - 1, inputs + row * columns);
    std::copy(window.begin() + 1, window.end(), targets + row * columns);
  }
  return batch;
}

}  // namespace ddp::train
