// Rows of data files that cannot be used: counted, and the first of them remembered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "trainer/config/data_config.h"
#include "trainer/runtime/error.h"

namespace ddp::train {

/// found() may be called by several threads at a time.
class LeftOut {
 public:
  explicit LeftOut(OnBadSample policy) : policy_(policy) {}

  /// Counts a row; `what` is its place and the reason. Throws UserError with the policy `stop`.
  void found(const std::string& what) {
    if (policy_ == OnBadSample::kStop)
      throw UserError(what + "; correct the row, or set data_config.on_bad_sample=skip");
    constexpr std::size_t kRemembered = 5;
    const std::lock_guard lock(mutex_);
    ++count_;
    if (first_.size() < kRemembered) first_.push_back(bounded(what));
  }
  int64_t count() const { return count_; }
  /// The first of them, at most five.
  const std::vector<std::string>& first() const { return first_; }
  /// "2 unusable rows left out; the first: FILE:LINE: reason", or "" if there are none.
  std::string text(const std::string& rows = "rows") const {
    if (count_ == 0) return "";
    return std::to_string(count_) + " unusable " + rows + " left out; the first: " + first_.front();
  }

 private:
  static std::string bounded(const std::string& what) {
    constexpr std::size_t kMostBytes = 1000;
    return what.size() <= kMostBytes ? what : what.substr(0, kMostBytes) + "...";
  }

  OnBadSample policy_;
  std::mutex mutex_;
  int64_t count_ = 0;
  std::vector<std::string> first_;
};

}  // namespace ddp::train
