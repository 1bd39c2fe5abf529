// Packed conversations as samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/chat/chat_encoding.h"
#include "trainer/data/sample_source.h"
#include "trainer/data/weighted_order.h"

namespace ddp::train {

/// What became of the conversations.
struct ChatCounts {
  int64_t conversations = 0;
  int64_t truncated = 0;       ///< Longer than a row: cut at its end.
  int64_t cut_tokens = 0;      ///< Tokens that the cut removed.
  int64_t without_target = 0;  ///< Left out: they have none, or none before the cut.
  int64_t targets = 0;
  int64_t used_positions = 0;  ///< Positions in all rows that hold a token.
};

/// A sample is a row of conversations that do not see each other (kPositions), filled up with
/// padding that is no target. A conversation of n tokens takes n - 1 positions: its last token is
/// predicted only. Which conversations share a row depends on their lengths alone. Inputs, targets
/// and positions: int64 [B, block_size].
class ChatSamples : public SampleSource {
 public:
  ChatSamples() : ChatSamples({}, 1) {}
  ChatSamples(std::vector<EncodedChat> chats, int64_t block_size);

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  Batch collate(const BatchRequest& request) const override;
  TargetCount targets() const override { return {block_size_, /*always=*/false}; }
  const std::string& fingerprint() const override { return fingerprint_; }

  const ChatCounts& counts() const { return counts_; }
  /// The share of all positions that hold a token; 0 of no rows.
  double filled() const;
  /// Tokens of the first conversation up to its first target.
  std::vector<int32_t> first_prompt() const;

 private:
  friend class MixedChats;
  struct RowSpans {
    std::span<int64_t> inputs, targets, positions;
  };
  /// Of a batch: `fill(i, spans)` writes row i and returns its number of targets.
  template <typename Fill>
  Batch batch_of(std::size_t rows, bool pinned, const Fill& fill) const;

  void cut(EncodedChat& chat);
  /// Returns the number of targets.
  int64_t fill(int64_t row, const RowSpans& to) const;
  std::string digest() const;

  int64_t block_size_;
  std::vector<EncodedChat> chats_;
  std::vector<std::vector<std::size_t>> rows_;  ///< Indices into chats_.
  ChatCounts counts_;
  std::string fingerprint_;
};

/// The rows of several sources, in the order of WeightedOrder. Conversations share a row with those
/// of their own source.
class MixedChats : public SampleSource {
 public:
  struct Part {
    const ChatSamples* samples;  ///< Outlives this; not empty.
    double weight = 1.0;         ///< At least 0; one of them is above.
  };
  /// Of one block size.
  MixedChats(std::vector<Part> parts, uint64_t seed);

  int64_t size() const override { return order_.size(); }
  Batch collate(const BatchRequest& request) const override;
  TargetCount targets() const override { return parts_.front().samples->targets(); }
  /// Of those of the sources and their weights.
  const std::string& fingerprint() const override { return fingerprint_; }

  /// Rows of a source in each epoch.
  int64_t samples_of(std::size_t part) const { return order_.samples_of(part); }

 private:
  std::vector<Part> parts_;
  WeightedOrder order_;
  std::string fingerprint_;
};

}  // namespace ddp::train
