// Loads batches in training order, prefetched a bounded distance ahead by a few threads.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/batch.h"
#include "trainer/data/distributed_sampler.h"
#include "trainer/data/sample_source.h"
#include "trainer/runtime/process/prefetcher.h"

namespace ddp::train {

/// Independent of finished steps: prefetched batches are not part of the training state.
class DataLoader {
 public:
  struct Options {
    int64_t batch_size = 1;
    int64_t micro_batches = 1;  ///< Per step of this rank.
    int rank = 0;
    int world_size = 1;
    int64_t workers = 0;  ///< Threads; 0: next() makes the batch itself.
    bool pin_memory = false;
  };

  /// Starts at `start`. `source` must outlive the loader.
  DataLoader(const SampleSource& source, const DistributedSampler& sampler, DataCursor start,
             const Options& options);

  /// Returns the next micro-batch of this rank, on the CPU; epochs follow each other endlessly.
  /// Rethrows a worker's exception.
  Batch next() { return batches_.next(); }

 private:
  struct Task {
    DataCursor cursor;
    int64_t micro = 0;
  };
  Task take_task();
  Batch make_batch(const Task& task) const;

  const SampleSource& source_;
  const DistributedSampler sampler_;
  const Options options_;
  Task next_task_;
  Prefetcher<Task, Batch> batches_;  // the last member: its threads use the others
};

/// Returns the `batch_size` samples of the micro-batch that begins at `position` of the epoch, a
/// multiple of `batch_size`.
///
/// Without buckets, those at [position, position + batch_size) of `order`. With buckets, the
/// positions are divided into stretches of bucket_batches() micro-batches; the samples of a stretch
/// are sorted by length, and its micro-batches are shuffled. The content and order of a stretch are
/// a function of `order` and `batch_size` alone: the same for any number of ranks, and after a
/// resume.
std::vector<int64_t> samples_of_batch(const SampleSource& source, const Permutation& order,
                                      int64_t position, int64_t batch_size);

/// Samples [first, first + count) as they are seen in epoch 0, on the CPU; `pinned`: in page-locked
/// memory.
Batch batch_of(const SampleSource& source, int64_t first, int64_t count, bool pinned = false);

}  // namespace ddp::train
