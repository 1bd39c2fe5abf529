// Samples that cannot be used: each is named once, and counted.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace ddp::train {

/// Used by several threads at a time.
class BadSamples {
 public:
  explicit BadSamples(OnBadSample policy) : policy_(policy) {}

  /// The sample of that name cannot be used. With the policy `stop` throws FinalError.
  void found(const std::string& name, const std::string& reason);
  bool stops() const { return policy_ == OnBadSample::kStop; }
  /// A line for each that was found since the last call, with the number so far.
  std::vector<std::string> take_lines();

 private:
  OnBadSample policy_;
  std::mutex mutex_;
  std::set<std::string> names_;
  std::vector<std::string> lines_;
};

}  // namespace ddp::train
