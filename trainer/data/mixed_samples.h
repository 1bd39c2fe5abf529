// Samples of several sources, drawn in proportion to their weights.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/sample_source.h"
#include "trainer/data/weighted_order.h"
#include "trainer/runtime/files/sha256.h"

namespace ddp::train {

/// Draws in the order of WeightedOrder. Source is a SampleSource whose batches are filled row by
/// row: `rows(request)` makes an empty batch of its format, `fill(rows, row, sample)` writes a row,
/// and `rows.batch()` returns the result. All sources have the same format.
template <typename Source>
class MixedSamples : public SampleSource {
 public:
  struct Part {
    const Source* samples;  ///< Must outlive the mixture; not empty.
    double weight = 1.0;    ///< At least 0; greater for at least one part.
  };
  MixedSamples(std::vector<Part> parts, uint64_t seed)
      : parts_(std::move(parts)), order_(sizes_of(parts_), seed) {
    Sha256 sum;
    for (const Part& part : parts_)
      sum.update(fmt::format("{} {}\n", part.samples->fingerprint(), part.weight));
    fingerprint_ = sum.hex();
  }

  int64_t size() const override { return order_.size(); }
  Batch collate(const BatchRequest& request) const override {
    auto rows = parts_.front().samples->rows(request);
    for (std::size_t row = 0; row < request.samples.size(); ++row) {
      const auto place = order_.at(request.samples[row], request.epoch);
      parts_[place.part].samples->fill(rows, row, place.sample);
    }
    return rows.batch();
  }
  TargetCount targets() const override { return parts_.front().samples->targets(); }
  /// Depends on the sources' fingerprints and weights.
  const std::string& fingerprint() const override { return fingerprint_; }

  /// Number of samples of a source per epoch.
  int64_t samples_of(std::size_t part) const { return order_.samples_of(part); }

 private:
  static std::vector<WeightedOrder::Part> sizes_of(const std::vector<Part>& parts) {
    std::vector<WeightedOrder::Part> sizes;
    for (const Part& part : parts) sizes.push_back({part.samples->size(), part.weight});
    return sizes;
  }

  std::vector<Part> parts_;
  WeightedOrder order_;
  std::string fingerprint_;
};

}  // namespace ddp::train
