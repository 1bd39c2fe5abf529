#include "trainer/data/images/bad_samples.h"

#include <fmt/format.h>

#include <utility>

#include "trainer/runtime/error.h"

namespace ddp::train {

void BadSamples::found(const std::string& name, const std::string& reason) {
  if (policy_ == OnBadSample::kStop) {
    throw FinalError(
        fmt::format("{}: cannot be used: {}; replace or remove it, or set "
                    "data_config.on_bad_sample=skip",
                    name, reason));
  }
  const std::lock_guard lock(mutex_);
  if (!names_.insert(name).second) return;
  lines_.push_back(
      fmt::format("{}: left out: {}; {} so far on this rank", name, reason, names_.size()));
}

std::vector<std::string> BadSamples::take_lines() {
  const std::lock_guard lock(mutex_);
  return std::exchange(lines_, {});
}

}  // namespace ddp::train
