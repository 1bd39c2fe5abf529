// The order in which samples are drawn from several sources in proportion to their weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::train {

/// An epoch has as many samples as all sources together; source s has the share weight_s / sum of
/// the weights of them, to one sample. Across epochs each source is traversed in random orders, one
/// pass after another: after each epoch the uses of its samples differ by at most one. The sampler
/// shuffles an epoch, passes included.
class WeightedOrder {
 public:
  struct Part {
    int64_t size = 0;     ///< Samples; not 0.
    double weight = 1.0;  ///< At least 0; one of them is above.
  };
  struct Place {
    std::size_t part = 0;
    int64_t sample = 0;  ///< Number within the part.
  };
  WeightedOrder(std::vector<Part> parts, uint64_t seed);

  int64_t size() const { return starts_.back(); }
  /// Number of samples of a source per epoch.
  int64_t samples_of(std::size_t part) const { return starts_[part + 1] - starts_[part]; }
  /// Returns sample i of epoch e: a function of (seed, e, i).
  Place at(int64_t sample, int64_t epoch) const;

 private:
  std::vector<Part> parts_;
  std::vector<int64_t> starts_;  // of each source's samples in an epoch; the last is the size
  uint64_t seed_;
};

/// Returns the part that sample `i` of all is in; `starts`: first samples of the parts.
std::size_t part_of(const std::vector<int64_t>& starts, int64_t i);

}  // namespace ddp::train
