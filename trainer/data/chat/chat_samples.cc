#include "trainer/data/chat/chat_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

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

std::vector<std::vector<std::size_t>> pack(std::span<const int64_t> sizes, int64_t capacity) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::vector<std::size_t>> rows;
  std::set<std::pair<int64_t, std::size_t>> room;  // left in each row
  for (const std::size_t item : order) {
    auto found = room.lower_bound({sizes[item], 0});
    std::pair<int64_t, std::size_t> place{capacity, rows.size()};
    if (found == room.end()) {
      rows.emplace_back();
    } else {
      place = *found;
      room.erase(found);
    }
    rows[place.second].push_back(item);
    room.insert({place.first - sizes[item], place.second});
  }
  for (auto& row : rows) std::sort(row.begin(), row.end());
  std::sort(rows.begin(), rows.end());
  return rows;
}

ChatRows::ChatRows(int64_t block_size, const BatchRequest& request)
    : inputs_(request.samples.size(), {block_size}, request.pinned),
      targets_(request.samples.size(), {block_size}, request.pinned),
      positions_(request.samples.size(), {block_size}, request.pinned) {}

void ChatRows::fill(std::size_t row, const std::vector<const EncodedChat*>& chats) {
  const auto inputs = inputs_[row], targets = targets_[row], positions = positions_[row];
  std::ranges::fill(inputs, 0);
  std::ranges::fill(targets, -1);
  std::size_t at = 0;
  for (const EncodedChat* chat : chats) {
    for (std::size_t t = 0; t + 1 < chat->tokens.size(); ++t, ++at) {
      inputs[at] = chat->tokens[t];
      positions[at] = static_cast<int64_t>(t);
      if (chat->is_target[t + 1]) targets[at] = chat->tokens[t + 1];
    }
    count_ += targets_of(*chat);
  }
  std::iota(positions.begin() + static_cast<std::ptrdiff_t>(at), positions.end(), 0);
}

Batch ChatRows::batch() const {
  return {{{kInputs, inputs_.tensor()},
           {kTargets, targets_.tensor()},
           {kPositions, positions_.tensor()}},
          count_};
}

ChatSamples::ChatSamples(std::vector<EncodedChat> chats, int64_t block_size)
    : block_size_(block_size) {
  counts_.conversations = static_cast<int64_t>(chats.size());
  std::vector<int64_t> sizes;
  for (EncodedChat& chat : chats) {
    counts_.lengths.add(std::ssize(chat.tokens));
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

void ChatSamples::fill(ChatRows& rows, std::size_t row, int64_t sample) const {
  std::vector<const EncodedChat*> chats;
  for (const std::size_t index : rows_[static_cast<std::size_t>(sample)])
    chats.push_back(&chats_[index]);
  rows.fill(row, chats);
}

Batch ChatSamples::collate(const BatchRequest& request) const {
  ChatRows made = rows(request);
  for (std::size_t i = 0; i < request.samples.size(); ++i) fill(made, i, request.samples[i]);
  return made.batch();
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

}  // namespace ddp::train
