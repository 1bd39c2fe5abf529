#include "trainer/data/tokens/token_windows.h"

#include <algorithm>

#include "trainer/data/rows.h"

namespace ddp::train {

TrainingWindows::TrainingWindows(const TokenSequence& tokens, TokenRange range, int64_t block_size,
                                 int64_t stride)
    : tokens_(tokens), range_(range), block_size_(block_size), stride_(stride) {}

int64_t TrainingWindows::size() const {
  const int64_t last_start = range_.size() - (block_size_ + 1);
  return last_start < 0 ? 0 : last_start / stride_ + 1;
}

Batch TrainingWindows::collate(const BatchRequest& request) const {
  Rows<int64_t> inputs(request.samples.size(), {block_size_}, request.pinned);
  Rows<int64_t> targets(request.samples.size(), {block_size_}, request.pinned);
  for (std::size_t i = 0; i < request.samples.size(); ++i) {
    const int64_t start = range_.first + request.samples[i] * stride_;
    tokens_.copy(start, inputs[i]);
    tokens_.copy(start + 1, targets[i]);
  }
  return {{{kInputs, inputs.tensor()}, {kTargets, targets.tensor()}}, targets.tensor().numel()};
}

EvaluationWindows::EvaluationWindows(const TokenSequence& tokens, TokenRange range,
                                     int64_t block_size)
    : tokens_(tokens), range_(range), block_size_(block_size) {}

int64_t EvaluationWindows::size() const {
  const int64_t targets = range_.size() - 1;
  return targets < 1 ? 0 : (targets + block_size_ - 1) / block_size_;
}

Batch EvaluationWindows::collate(const BatchRequest& request) const {
  Rows<int64_t> inputs(request.samples.size(), {block_size_}, request.pinned);
  Rows<int64_t> targets(request.samples.size(), {block_size_}, request.pinned);
  int64_t count = 0;
  for (std::size_t i = 0; i < request.samples.size(); ++i) {
    const int64_t start = range_.first + request.samples[i] * block_size_;
    const int64_t length = std::min(block_size_, range_.last - 1 - start);
    const auto there = static_cast<std::size_t>(length);
    tokens_.copy(start, inputs[i].first(there));
    tokens_.copy(start + 1, targets[i].first(there));
    std::ranges::fill(inputs[i].subspan(there), 0);
    std::ranges::fill(targets[i].subspan(there), -1);
    count += length;
  }
  return {{{kInputs, inputs.tensor()}, {kTargets, targets.tensor()}}, count};
}

}  // namespace ddp::train
