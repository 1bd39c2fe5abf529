// The evaluation windows of several sources.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/sample_source.h"
#include "trainer/data/tokens/token_windows.h"

namespace ddp::train {

/// The sources' windows, one source after the other.
class JoinedWindows : public SampleSource {
 public:
  /// Each part outlives it.
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
