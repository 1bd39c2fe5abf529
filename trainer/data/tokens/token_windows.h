// Windows over a sequence of tokens: the samples of a language model.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/data/sample_source.h"
#include "trainer/data/tokens/token_sequence.h"

namespace ddp::train {

/// Tokens [first, last) of a sequence.
struct TokenRange {
  int64_t first = 0;
  int64_t last = 0;

  int64_t size() const { return last - first; }
};

/// Sample i is tokens [i * stride, i * stride + block_size] of the range: one more than block_size,
/// as the targets are the inputs shifted by one. Inputs and targets: int64 [B, block_size].
class TrainingWindows : public SampleSource {
 public:
  /// `tokens` outlives it.
  TrainingWindows(const TokenSequence& tokens, TokenRange range, int64_t block_size,
                  int64_t stride);

  int64_t size() const override;
  Batch collate(const BatchRequest& request) const override;
  TargetCount targets() const override { return {block_size_, /*always=*/true}; }
  const std::string& fingerprint() const override { return tokens_.fingerprint(); }

  int64_t stride() const { return stride_; }

 private:
  const TokenSequence& tokens_;
  TokenRange range_;
  int64_t block_size_;
  int64_t stride_;
};

/// Each token of the range but the first is the target exactly once. The last window may be
/// shorter: inputs 0 and targets -1 behind its end. Inputs and targets: int64 [B, block_size].
class EvaluationWindows : public SampleSource {
 public:
  /// `tokens` outlives it.
  EvaluationWindows(const TokenSequence& tokens, TokenRange range, int64_t block_size);

  int64_t size() const override;
  Batch collate(const BatchRequest& request) const override;
  TargetCount targets() const override { return {block_size_, /*always=*/false}; }
  const std::string& fingerprint() const override { return tokens_.fingerprint(); }

 private:
  const TokenSequence& tokens_;
  TokenRange range_;
  int64_t block_size_;
};

}  // namespace ddp::train
