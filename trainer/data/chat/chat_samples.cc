#include "trainer/data/chat/chat_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "trainer/data/chat/chat_packing.h"
#include "trainer/data/rows.h"
#include "trainer/runtime/files/sha256.h"

namespace ddp::train {
namespace {

/// Positions of a row: every token but the last has one after it.
int64_t positions_of(const EncodedChat& chat) {
  return std::max<int64_t>(0, static_cast<int64_t>(chat.tokens.size()) - 1);
}

/// The first token has none before it that it could be predicted from.
int64_t targets_of(const EncodedChat& chat) {
  if (chat.is_target.empty()) return 0;
  return std::count(chat.is_target.begin() + 1, chat.is_target.end(), true);
}

}  // namespace

ChatSamples::ChatSamples(std::vector<EncodedChat> chats, int64_t block_size)
    : block_size_(block_size) {
  counts_.conversations = static_cast<int64_t>(chats.size());
  std::vector<int64_t> sizes;
  for (EncodedChat& chat : chats) {
    cut(chat);
    const int64_t targets = targets_of(chat);
    if (targets == 0) {
      ++counts_.without_target;
      continue;
    }
    counts_.targets += targets;
    counts_.used_positions += positions_of(chat);
    sizes.push_back(positions_of(chat));
    chats_.push_back(std::move(chat));
  }
  rows_ = pack(sizes, block_size);
  fingerprint_ = digest();
}

void ChatSamples::cut(EncodedChat& chat) {
  const int64_t beyond = positions_of(chat) - block_size_;
  if (beyond <= 0) return;
  ++counts_.truncated;
  counts_.cut_tokens += beyond;
  chat.tokens.resize(static_cast<std::size_t>(block_size_ + 1));
  chat.is_target.resize(chat.tokens.size());
}

int64_t ChatSamples::fill(int64_t row, const RowSpans& to) const {
  std::ranges::fill(to.inputs, 0);
  std::ranges::fill(to.targets, -1);
  std::size_t at = 0;
  int64_t count = 0;
  for (const std::size_t index : rows_[static_cast<std::size_t>(row)]) {
    const EncodedChat& chat = chats_[index];
    for (std::size_t t = 0; t + 1 < chat.tokens.size(); ++t, ++at) {
      to.inputs[at] = chat.tokens[t];
      to.positions[at] = static_cast<int64_t>(t);
      if (chat.is_target[t + 1]) to.targets[at] = chat.tokens[t + 1];
    }
    count += targets_of(chat);
  }
  std::iota(to.positions.begin() + static_cast<std::ptrdiff_t>(at), to.positions.end(), 0);
  return count;
}

template <typename Fill>
Batch ChatSamples::batch_of(std::size_t rows, bool pinned, const Fill& fill) const {
  Rows<int64_t> inputs(rows, {block_size_}, pinned);
  Rows<int64_t> targets(rows, {block_size_}, pinned);
  Rows<int64_t> positions(rows, {block_size_}, pinned);
  int64_t target_count = 0;
  for (std::size_t i = 0; i < rows; ++i)
    target_count += fill(i, RowSpans{inputs[i], targets[i], positions[i]});
  return {
      {{kInputs, inputs.tensor()}, {kTargets, targets.tensor()}, {kPositions, positions.tensor()}},
      target_count};
}

Batch ChatSamples::collate(const BatchRequest& request) const {
  return batch_of(request.samples.size(), request.pinned,
                  [&](std::size_t i, const RowSpans& to) { return fill(request.samples[i], to); });
}

double ChatSamples::filled() const {
  const double positions = static_cast<double>(size()) * static_cast<double>(block_size_);
  return size() == 0 ? 0.0 : static_cast<double>(counts_.used_positions) / positions;
}

std::vector<int32_t> ChatSamples::first_prompt() const {
  const EncodedChat& chat = chats_.front();
  const auto first = std::find(chat.is_target.begin() + 1, chat.is_target.end(), true);
  return {chat.tokens.begin(), chat.tokens.begin() + (first - chat.is_target.begin())};
}

// Covers the rows, because other rows make other batches in an evaluation.
std::string ChatSamples::digest() const {
  Sha256 sum;
  sum.update(fmt::format("chat {}", block_size_));
  for (const auto& row : rows_) {
    for (const std::size_t index : row) {
      const EncodedChat& chat = chats_[index];
      const std::vector<char> targets(chat.is_target.begin(), chat.is_target.end());
      sum.update(chat.tokens.data(), chat.tokens.size() * sizeof(int32_t));
      sum.update(targets.data(), targets.size());
    }
    sum.update("row");
  }
  return sum.hex();
}

namespace {

WeightedOrder order_of(const std::vector<MixedChats::Part>& parts, uint64_t seed) {
  std::vector<WeightedOrder::Part> sizes;
  for (const auto& part : parts) sizes.push_back({part.samples->size(), part.weight});
  return {std::move(sizes), seed};
}

}  // namespace

MixedChats::MixedChats(std::vector<Part> parts, uint64_t seed)
    : parts_(std::move(parts)), order_(order_of(parts_, seed)) {
  Sha256 sum;
  for (const Part& part : parts_)
    sum.update(fmt::format("{} {}\n", part.samples->fingerprint(), part.weight));
  fingerprint_ = sum.hex();
}

Batch MixedChats::collate(const BatchRequest& request) const {
  return parts_.front().samples->batch_of(
      request.samples.size(), request.pinned, [&](std::size_t i, const auto& to) {
        const auto place = order_.at(request.samples[i], request.epoch);
        return parts_[place.part].samples->fill(place.sample, to);
      });
}

}  // namespace ddp::train
