// Samples by number: what a task trains and evaluates on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/batch.h"

namespace ddp::train {

/// Which samples, as which epoch sees them, and into what memory.
struct BatchRequest {
  std::span<const int64_t> samples;
  int64_t epoch = 0;
  bool pinned = false;  ///< Page-locked, so that copies to a GPU need no waiting.
};

/// How many targets a batch has by its number of samples alone.
struct TargetCount {
  int64_t per_sample = 1;  ///< In a complete sample.
  bool always = true;      ///< All samples of the source are complete.
};

/// Which samples are for training and which for evaluation, in rising order.
struct SampleSplit {
  std::vector<int64_t> training;
  std::vector<int64_t> evaluation;
};

/// Immutable; every member may be called by several threads at a time.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual int64_t size() const = 0;
  /// Makes a micro-batch on the CPU, padding, masks and target_count included. Row i is sample
  /// `request.samples[i]`, from 0 to size() - 1, and what is in it a pure function of (sample,
  /// epoch), so that a resumed run sees what an uninterrupted one would have seen.
  virtual Batch collate(const BatchRequest& request) const = 0;
  virtual TargetCount targets() const = 0;
  /// How much work a sample is compared with others, such as its tokens; for sources with buckets.
  virtual int64_t length(int64_t /*index*/) const { return 0; }
  /// Micro-batches that are made of samples sorted by length together; 0: the order is random.
  virtual int64_t bucket_batches() const { return 0; }
  /// Equal for equal samples, whatever the files are called.
  virtual const std::string& fingerprint() const = 0;
};

}  // namespace ddp::train
