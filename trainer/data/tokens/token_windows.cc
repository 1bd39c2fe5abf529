#include "trainer/data/tokens/token_windows.h"

#include <algorithm>
#include <span>

namespace ddp::train {
namespace {

std::span<int64_t> tokens_at(void* row, int64_t count) {
  return {static_cast<int64_t*>(row), static_cast<std::size_t>(count)};
}

SampleSpec windows_of(int64_t block_size) {
  const RowSpec row{c10::kLong, {block_size}};
  return {row, row};
}

}  // namespace

TrainingWindows::TrainingWindows(const TokenSequence& tokens, TokenRange range, int64_t block_size,
                                 int64_t stride)
    : tokens_(tokens), range_(range), block_size_(block_size), stride_(stride) {}

int64_t TrainingWindows::size() const {
  const int64_t last_start = range_.size() - (block_size_ + 1);
  return last_start < 0 ? 0 : last_start / stride_ + 1;
}

SampleSpec TrainingWindows::spec() const { return windows_of(block_size_); }

void TrainingWindows::fill(int64_t index, int64_t /*epoch*/, const SampleRow& row) const {
  const int64_t start = range_.first + index * stride_;
  tokens_.copy(start, tokens_at(row.inputs, block_size_));
  tokens_.copy(start + 1, tokens_at(row.targets, block_size_));
}

EvaluationWindows::EvaluationWindows(const TokenSequence& tokens, TokenRange range,
                                     int64_t block_size)
    : tokens_(tokens), range_(range), block_size_(block_size) {}

int64_t EvaluationWindows::size() const {
  const int64_t targets = range_.size() - 1;
  return targets < 1 ? 0 : (targets + block_size_ - 1) / block_size_;
}

SampleSpec EvaluationWindows::spec() const { return windows_of(block_size_); }

void EvaluationWindows::fill(int64_t index, int64_t /*epoch*/, const SampleRow& row) const {
  const int64_t start = range_.first + index * block_size_;
  const int64_t length = std::min(block_size_, range_.last - 1 - start);
  tokens_.copy(start, tokens_at(row.inputs, length));
  tokens_.copy(start + 1, tokens_at(row.targets, length));
  const auto inputs = tokens_at(row.inputs, block_size_);
  const auto targets = tokens_at(row.targets, block_size_);
  std::fill(inputs.begin() + length, inputs.end(), 0);
  std::fill(targets.begin() + length, targets.end(), -1);
}

}  // namespace ddp::train
