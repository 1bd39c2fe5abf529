// Windows over a sequence of tokens, the samples of a language model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/data/rows.h"
#include "trainer/data/sample_source.h"
#include "trainer/data/tokens/token_sequence.h"

namespace ddp::train {

/// Tokens [first, last) of a sequence.
struct TokenRange {
  int64_t first = 0;
  int64_t last = 0;

  int64_t size() const { return last - first; }
};

/// How windows become rows.
struct WindowFormat {
  int64_t block_size = 0;
  /// Ends each document; attention does not cross documents. nullopt: a window is one document.
  std::optional<int32_t> document_end{};
};

/// A micro-batch of windows while it is being filled: inputs and targets, int64 [B, block_size],
/// and with document_end the positions in the documents.
class WindowRows {
 public:
  WindowRows(const WindowFormat& format, const BatchRequest& request);

  /// Row `row`: inputs are `length` tokens from `start` on, targets those from start + 1 on; after
  /// them inputs are 0 and targets -1.
  void fill(std::size_t row, const TokenSequence& tokens, int64_t start, int64_t length);
  Batch batch() const;

 private:
  WindowFormat format_;
  Rows<int64_t> inputs_, targets_, positions_;
  int64_t count_ = 0;
};

/// Sample i starts at token i * stride of the range; its targets are its inputs shifted by one.
/// Inputs and targets: int64 [B, block_size].
class TokenWindows : public SampleSource {
 public:
  /// With a stride, for training, all windows are complete. Without one, for evaluation, each token
  /// of the range but the first is the target exactly once; the last window may be shorter: inputs
  /// 0 and targets -1 after its end. `tokens` outlives it.
  TokenWindows(const TokenSequence& tokens, TokenRange range, const WindowFormat& format,
               std::optional<int64_t> stride)
      : tokens_(tokens),
        range_(range),
        format_(format),
        stride_(stride.value_or(format.block_size)),
        least_targets_(stride ? format.block_size : 1) {}

  int64_t size() const override;
  Batch collate(const BatchRequest& request) const override;
  WindowRows rows(const BatchRequest& request) const { return {format_, request}; }
  /// Fills a row with sample `sample`.
  void fill(WindowRows& rows, std::size_t row, int64_t sample) const;
  TargetCount targets() const override {
    return {format_.block_size, /*always=*/least_targets_ == format_.block_size};
  }
  const std::string& fingerprint() const override { return tokens_.fingerprint(); }

  int64_t stride() const { return stride_; }

 private:
  const TokenSequence& tokens_;
  TokenRange range_;
  WindowFormat format_;
  int64_t stride_;
  int64_t least_targets_;  // of a window
};

}  // namespace ddp::train
