#include "trainer/data/data_loader.h"

#include <algorithm>
#include <numeric>

#include "trainer/runtime/seed.h"

namespace ddp::train {
namespace {

constexpr int64_t kBatchesAheadPerWorker = 2;  // torch's prefetch_factor

std::vector<int64_t> in_order(const Permutation& order, int64_t first, int64_t count) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < count; ++i) samples.push_back(order(first + i));
  return samples;
}

}  // namespace

std::vector<int64_t> samples_of_batch(const SampleSource& source, const Permutation& order,
                                      int64_t position, int64_t batch_size) {
  if (source.bucket_batches() == 0) return in_order(order, position, batch_size);
  const int64_t whole = order.size() / batch_size;  // what is left is too few for a micro-batch
  const int64_t stretch = position / batch_size / source.bucket_batches();
  const int64_t first = stretch * source.bucket_batches();
  const int64_t batches = std::min(source.bucket_batches(), whole - first);
  auto samples = in_order(order, first * batch_size, batches * batch_size);
  std::stable_sort(samples.begin(), samples.end(),
                   [&source](int64_t a, int64_t b) { return source.length(a) < source.length(b); });
  const Permutation places(batches, bucket_seed(order.key(), stretch));
  const auto from = samples.begin() + places(position / batch_size - first) * batch_size;
  return {from, from + batch_size};
}

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
