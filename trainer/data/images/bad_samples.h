// Counts unusable samples and reports each once.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "trainer/config/data_config.h"

namespace ddp::train {

/// Used by several threads at a time.
class BadSamples {
 public:
  explicit BadSamples(OnBadSample policy) : policy_(policy) {}

  /// Records an unusable sample. Throws FinalError with the policy `stop`.
  void found(const std::string& name, const std::string& reason);
  bool stops() const { return policy_ == OnBadSample::kStop; }
  /// Returns a line for each sample found since the last call, with the count so far.
  std::vector<std::string> take_lines();

 private:
  OnBadSample policy_;
  std::mutex mutex_;
  std::set<std::string> names_;
  std::vector<std::string> lines_;
};

}  // namespace ddp::train
