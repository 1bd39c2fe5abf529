// How long samples are: a histogram by powers of two.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ddp::train {

class LengthCounts {
 public:
  /// Bin i: lengths from 2^(i-1) to 2^i - 1; bin 0: length 0.
  static constexpr std::size_t kBins = 48;

  void add(int64_t length) {
    const auto bin = static_cast<std::size_t>(std::bit_width(static_cast<uint64_t>(length)));
    ++bins_[std::min(bin, kBins - 1)];
    ++count_;
    sum_ += length;
    longest_ = std::max(longest_, length);
  }
  void add(const LengthCounts& others) {
    for (std::size_t i = 0; i < kBins; ++i) bins_[i] += others.bins_[i];
    count_ += others.count_;
    sum_ += others.sum_;
    longest_ = std::max(longest_, others.longest_);
  }
  const std::array<int64_t, kBins>& bins() const { return bins_; }
  int64_t count() const { return count_; }
  int64_t sum() const { return sum_; }
  int64_t longest() const { return longest_; }

 private:
  std::array<int64_t, kBins> bins_{};
  int64_t count_ = 0;
  int64_t sum_ = 0;
  int64_t longest_ = 0;
};

}  // namespace ddp::train
