// Disables cached 16-bit copies of divided weights.
#pragma once

#include <ATen/autocast_mode.h>

#include "trainer/parallel/strategy/gradient_sync.h"

namespace ddp::train {

/// Keeps autocast from caching 16-bit copies of divided weights, which would outlive them.
class WithoutCopies {
 public:
  explicit WithoutCopies(const GradientSync& sync)
      : cached_(at::autocast::is_autocast_cache_enabled()) {
    if (sync.divides_weights()) at::autocast::set_autocast_cache_enabled(false);
  }
  ~WithoutCopies() { at::autocast::set_autocast_cache_enabled(cached_); }
  WithoutCopies(const WithoutCopies&) = delete;
  WithoutCopies& operator=(const WithoutCopies&) = delete;

 private:
  bool cached_;
};

}  // namespace ddp::train
