// Windows of several sources, drawn in proportion to their weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/sample_source.h"
#include "trainer/data/tokens/token_windows.h"
#include "trainer/data/weighted_order.h"

namespace ddp::train {

/// In the order of WeightedOrder.
class MixedWindows : public SampleSource {
 public:
  struct Part {
    const TrainingWindows* windows;  ///< Outlives this; not empty.
    double weight = 1.0;             ///< At least 0; one of them is above.
  };
  /// Of one block size.
  MixedWindows(std::vector<Part> parts, uint64_t seed);

  int64_t size() const override { return order_.size(); }
  Batch collate(const BatchRequest& request) const override;
  TargetCount targets() const override { return parts_.front().windows->targets(); }
  /// Of those of the sources and their weights.
  const std::string& fingerprint() const override { return fingerprint_; }

  /// Samples of a source in each epoch.
  int64_t samples_of(std::size_t part) const { return order_.samples_of(part); }

 private:
  std::vector<Part> parts_;
  WeightedOrder order_;
  std::string fingerprint_;
};

/// The sources' evaluation windows, one source after the other.
class JoinedWindows : public SampleSource {
 public:
  /// Each outlives it.
  explicit JoinedWindows(std::vector<const EvaluationWindows*> parts);

  int64_t size() const override { return starts_.back(); }
  Batch collate(const BatchRequest& request) const override;
  TargetCount targets() const override { return parts_.front()->targets(); }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  std::vector<const EvaluationWindows*> parts_;
  std::vector<int64_t> starts_;
  std::string fingerprint_;
};

}  // namespace ddp::train
