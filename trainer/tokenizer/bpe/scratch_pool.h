// Encoding state kept for the next text: one per concurrently encoding thread.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "trainer/tokenizer/bpe/pair_merging.h"

namespace ddp::train {

class ScratchPool {
 public:
  /// Runs `work` with a scratch that no other thread uses meanwhile.
  template <typename Work>
  void use(const Work& work) {
    auto scratch = take();
    work(*scratch);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(scratch));
  }

 private:
  std::unique_ptr<BpeScratch> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<BpeScratch>();
    auto scratch = std::move(idle_.back());
    idle_.pop_back();
    return scratch;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<BpeScratch>> idle_;
};

}  // namespace ddp::train
