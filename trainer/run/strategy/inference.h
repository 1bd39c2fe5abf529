// Guards around forward passes of weights that ranks may divide.
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

/// Forward passes without backward passes while it exists.
class Inference {
 public:
  explicit Inference(GradientSync& sync) : sync_(sync), no_copies_(sync) { sync.begin_inference(); }
  ~Inference() { sync_.end_inference(); }
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

 private:
  GradientSync& sync_;
  WithoutCopies no_copies_;
};

}  // namespace ddp::train
