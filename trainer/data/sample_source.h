// The interface to the samples, by number, that a task trains and evaluates on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/batch.h"

namespace ddp::train {

/// The samples to load, the epoch, and the kind of memory.
struct BatchRequest {
  std::span<const int64_t> samples;
  int64_t epoch = 0;
  bool pinned = false;  ///< Page-locked, so that copies to a GPU are asynchronous.
};

/// The number of targets of a batch as a function of its number of samples.
struct TargetCount {
  int64_t per_sample = 1;  ///< In a complete sample.
  bool always = true;      ///< All samples of the source are complete.
};

/// The samples for training and those for evaluation, in ascending order.
struct SampleSplit {
  std::vector<int64_t> training;
  std::vector<int64_t> evaluation;
};

/// Immutable; every member may be called by several threads at a time.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual int64_t size() const = 0;
  /// Returns a micro-batch on the CPU, including padding, masks and target_count. Row i is sample
  /// `request.samples[i]`, from 0 to size() - 1; its content is a pure function of (sample, epoch),
  /// so that a resumed run sees what an uninterrupted one would have seen.
  virtual Batch collate(const BatchRequest& request) const = 0;
  virtual TargetCount targets() const = 0;
  /// The relative cost of a sample, such as its number of tokens; for sources with buckets.
  virtual int64_t length(int64_t /*index*/) const { return 0; }
  /// Number of micro-batches whose samples are sorted by length together; 0: random order.
  virtual int64_t bucket_batches() const { return 0; }
  /// Equal for equal samples, independent of file names.
  virtual const std::string& fingerprint() const = 0;
};

}  // namespace ddp::train
