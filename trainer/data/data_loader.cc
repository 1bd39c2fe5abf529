#include "trainer/data/data_loader.h"

#include <numeric>
#include <vector>

#include "trainer/data/text/length_buckets.h"

namespace ddp::train {
namespace {

constexpr int64_t kBatchesAheadPerWorker = 2;  // torch's prefetch_factor

}  // namespace

DataLoader::DataLoader(const SampleSource& source, const DistributedSampler& sampler,
                       DataCursor start, const Options& options)
    : source_(source),
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
  const Permutation order = sampler_.order(task.cursor.epoch);
  const int64_t global_micro = task.micro * options_.world_size + options_.rank;
  const int64_t first = task.cursor.position + global_micro * options_.batch_size;
  const auto samples = samples_of_batch(source_, order, first, options_.batch_size);
  return source_.collate({samples, task.cursor.epoch, options_.pin_memory});
}

Batch batch_of(const SampleSource& source, int64_t first, int64_t count, bool pinned) {
  std::vector<int64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), first);
  return source.collate({samples, /*epoch=*/0, pinned});
}

}  // namespace ddp::train
