// Samples by number: what a task trains and evaluates on.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::train {

/// Element type and shape of one row of a batch.
struct RowSpec {
  c10::ScalarType dtype = c10::kLong;
  std::vector<int64_t> shape;  ///< Without the batch dimension.
};

struct SampleSpec {
  RowSpec inputs;
  RowSpec targets;
};

/// Where one sample is written to: a row of each tensor, contiguous, as SampleSpec says.
struct SampleRow {
  void* inputs = nullptr;
  void* targets = nullptr;
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
  virtual SampleSpec spec() const = 0;
  /// Writes sample `index`, 0 <= index < size(), as it is seen in `epoch`: a pure function of both,
  /// so that a resumed run sees what the unbroken one would have seen.
  virtual void fill(int64_t index, int64_t epoch, const SampleRow& row) const = 0;
  /// How much work a sample is beside others, such as its tokens; for sources with buckets.
  virtual int64_t length(int64_t /*index*/) const { return 0; }
  /// Micro-batches that are made of samples sorted by length together; 0: the order is random.
  virtual int64_t bucket_batches() const { return 0; }
  /// Equal for equal samples, whatever the files are called.
  virtual const std::string& fingerprint() const = 0;
};

}  // namespace ddp::train
