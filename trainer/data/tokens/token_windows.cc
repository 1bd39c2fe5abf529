#include "trainer/data/tokens/token_windows.h"

#include <algorithm>

namespace ddp::train {
namespace {

/// Counts each token's distance from the start of its document, which ends with `document_end`.
void count_positions(std::span<const int64_t> tokens, int32_t document_end,
                     std::span<int64_t> positions) {
  int64_t next = 0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    positions[t] = next;
    next = tokens[t] == document_end ? 0 : next + 1;
  }
}

}  // namespace

WindowRows::WindowRows(const WindowFormat& format, const BatchRequest& request)
    : format_(format),
      inputs_(request.samples.size(), {format.block_size}, request.pinned),
      targets_(request.samples.size(), {format.block_size}, request.pinned),
      positions_(format.document_end ? request.samples.size() : 0, {format.block_size},
                 request.pinned) {}

void WindowRows::fill(std::size_t row, const TokenSequence& tokens, int64_t start, int64_t length) {
  const auto there = static_cast<std::size_t>(length);
  tokens.copy(start, inputs_[row].first(there));
  tokens.copy(start + 1, targets_[row].first(there));
  std::ranges::fill(inputs_[row].subspan(there), 0);
  std::ranges::fill(targets_[row].subspan(there), -1);
  if (format_.document_end) count_positions(inputs_[row], *format_.document_end, positions_[row]);
  count_ += length;
}

Batch WindowRows::batch() const {
  Batch batch{{{kInputs, inputs_.tensor()}, {kTargets, targets_.tensor()}}, count_};
  if (format_.document_end) batch.tensors[kPositions] = positions_.tensor();
  return batch;
}

int64_t TokenWindows::size() const {
  const int64_t targets = range_.size() - 1;
  return targets < least_targets_ ? 0 : (targets - least_targets_) / stride_ + 1;
}

void TokenWindows::fill(WindowRows& rows, std::size_t row, int64_t sample) const {
  const int64_t start = range_.first + sample * stride_;
  rows.fill(row, tokens_, start, std::min(format_.block_size, range_.last - 1 - start));
}

Batch TokenWindows::collate(const BatchRequest& request) const {
  WindowRows made = rows(request);
  for (std::size_t i = 0; i < request.samples.size(); ++i) fill(made, i, request.samples[i]);
  return made.batch();
}

}  // namespace ddp::train
