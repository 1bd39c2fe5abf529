#include "trainer/data/data_loader.h"

#include "trainer/data/text/length_buckets.h"

namespace ddp::train {
namespace {

constexpr int64_t kBatchesAheadPerWorker = 2;  // torch's prefetch_factor

torch::Tensor empty_rows(int64_t rows, const RowSpec& spec, bool pinned) {
  std::vector<int64_t> shape = {rows};
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  return torch::empty(shape, torch::TensorOptions(spec.dtype).pinned_memory(pinned));
}

/// A batch and where its rows lie.
class BatchRows {
 public:
  BatchRows(const SampleSource& source, int64_t rows, bool pinned)
      : batch_{empty_rows(rows, source.spec().inputs, pinned),
               empty_rows(rows, source.spec().targets, pinned)},
        input_bytes_(batch_.inputs.nbytes() / static_cast<std::size_t>(rows)),
        target_bytes_(batch_.targets.nbytes() / static_cast<std::size_t>(rows)) {}

  SampleRow row(int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    return {static_cast<std::byte*>(batch_.inputs.mutable_data_ptr()) + at * input_bytes_,
            static_cast<std::byte*>(batch_.targets.mutable_data_ptr()) + at * target_bytes_};
  }
  Batch batch() && { return std::move(batch_); }

 private:
  Batch batch_;
  std::size_t input_bytes_;
  std::size_t target_bytes_;
};

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
  BatchRows rows(source_, options_.batch_size, options_.pin_memory);
  const Permutation order = sampler_.order(task.cursor.epoch);
  const int64_t global_micro = task.micro * options_.world_size + options_.rank;
  const int64_t first = task.cursor.position + global_micro * options_.batch_size;
  int64_t row = 0;
  for (const int64_t sample : samples_of_batch(source_, order, first, options_.batch_size))
    source_.fill(sample, task.cursor.epoch, rows.row(row++));
  return std::move(rows).batch();
}

Batch batch_of(const SampleSource& source, int64_t first, int64_t count) {
  BatchRows rows(source, count, /*pinned=*/false);
  for (int64_t i = 0; i < count; ++i) source.fill(first + i, /*epoch=*/0, rows.row(i));
  return std::move(rows).batch();
}

}  // namespace ddp::train
