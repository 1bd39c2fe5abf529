// Packed conversations as samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/chat/chat_encoding.h"
#include "trainer/data/length_counts.h"
#include "trainer/data/rows.h"
#include "trainer/data/sample_source.h"

namespace ddp::train {

/// Assigns items of these sizes, each at most `capacity`, to rows: each item, from the largest on,
/// to the fullest row that has room for it (best fit decreasing). Rows, and the items in them, are
/// in the order of their first item. A function of the sizes alone.
std::vector<std::vector<std::size_t>> pack(std::span<const int64_t> sizes, int64_t capacity);

/// Statistics of the packed conversations.
struct ChatCounts {
  int64_t conversations = 0;
  int64_t truncated = 0;       ///< Longer than a row: cut at its end.
  int64_t cut_tokens = 0;      ///< Tokens that the cut removed.
  int64_t without_target = 0;  ///< Left out: they have none, or none before the cut.
  int64_t targets = 0;
  int64_t used_positions = 0;  ///< Positions in all rows that hold a token.
  LengthCounts lengths;        ///< Lengths of all conversations in tokens, before the cut.
};

/// A micro-batch of conversations while it is being filled: inputs, targets and positions, int64
/// [B, block_size].
class ChatRows {
 public:
  ChatRows(int64_t block_size, const BatchRequest& request);

  /// Row `row` holds `chats`, one after the other, then padding.
  void fill(std::size_t row, const std::vector<const EncodedChat*>& chats);
  Batch batch() const;

 private:
  Rows<int64_t> inputs_, targets_, positions_;
  int64_t count_ = 0;
};

/// A sample is a row of conversations that do not attend to each other (kPositions), padded at its
/// end with positions that are not targets. A conversation of n tokens takes n - 1 positions: its
/// last token is predicted only. Which conversations share a row depends on their lengths alone.
/// Inputs, targets and positions: int64 [B, block_size].
class ChatSamples : public SampleSource {
 public:
  ChatSamples() : ChatSamples({}, 1) {}
  ChatSamples(std::vector<EncodedChat> chats, int64_t block_size);

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  Batch collate(const BatchRequest& request) const override;
  ChatRows rows(const BatchRequest& request) const { return {block_size_, request}; }
  /// Fills a row with sample `sample`.
  void fill(ChatRows& rows, std::size_t row, int64_t sample) const;
  TargetCount targets() const override { return {block_size_, /*always=*/false}; }
  const std::string& fingerprint() const override { return fingerprint_; }

  const ChatCounts& counts() const { return counts_; }
  /// Returns the share of all positions that hold a token; 0 without rows.
  double filled() const;
  /// Returns the tokens of the first conversation up to its first target.
  std::vector<int32_t> first_prompt() const;

 private:
  void cut(EncodedChat& chat);
  std::string digest() const;

  int64_t block_size_;
  std::vector<EncodedChat> chats_;
  std::vector<std::vector<std::size_t>> rows_;  ///< Indices into chats_.
  ChatCounts counts_;
  std::string fingerprint_;
};

}  // namespace ddp::train
