// Rows of data files that cannot be used: counted, and the first of them remembered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/data_config.h"
#include "trainer/runtime/error.h"

namespace ddp::train {

/// found() may be called by several threads at a time.
class LeftOut {
 public:
  /// `skip`: the setting that leaves such rows out, as the user writes it.
  explicit LeftOut(OnBadSample policy, std::string skip = "data_config.on_bad_sample=skip")
      : policy_(policy), skip_(std::move(skip)) {}

  /// Counts a row; `what` is its place and the reason. Throws UserError with the policy `stop`.
  void found(const std::string& what) {
    if (policy_ == OnBadSample::kStop) throw UserError(what + "; correct the row, or set " + skip_);
    constexpr std::size_t kRemembered = 5;
    const std::lock_guard lock(mutex_);
    ++count_;
    if (first_.size() < kRemembered) first_.push_back(bounded(what));
  }
  int64_t count() const { return count_; }
  /// The first of them, at most five.
  const std::vector<std::string>& first() const { return first_; }
  /// "2 unusable rows left out; the first: FILE:LINE: reason", or "" if there are none.
  std::string text(const std::string& row = "row") const {
    if (count_ == 0) return "";
    return std::to_string(count_) + " unusable " + row + (count_ == 1 ? "" : "s") +
           " left out; the first: " + first_.front();
  }

 private:
  static std::string bounded(const std::string& what) {
    constexpr std::size_t kMostBytes = 1000;
    std::string start(what, 0, kMostBytes);
    if (what.size() > kMostBytes) start += "...";
    return start;
  }

  OnBadSample policy_;
  std::string skip_;
  std::mutex mutex_;
  int64_t count_ = 0;
  std::vector<std::string> first_;
};

}  // namespace ddp::train
