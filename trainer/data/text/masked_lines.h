// Lines with some of their tokens hidden: the samples of a masked language model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/sample_source.h"
#include "trainer/data/text/bert_batch.h"
#include "trainer/data/text/text_lines.h"

namespace ddp::train {

/// The tokens with a special meaning.
struct MaskingTokens : BertTokens {
  int32_t mask = 0;
  std::vector<int32_t> ordinary;  ///< Random tokens are drawn from these; only these are hidden.
};

struct MaskingOptions {
  int64_t block_size = 0;  ///< Maximum tokens per row, including [CLS] and [SEP].
  double share = 0.15;     ///< Share of a line's ordinary tokens to hide, at least one.
  uint64_t seed = 0;
  bool every_epoch_anew = true;  ///< Otherwise every epoch hides those of epoch 0.
};

/// Sample i is [CLS] line i [SEP] and padding, as in bert_batch(). 80 % of the tokens chosen become
/// [MASK], 10 % a random token, 10 % stay as they are. They are the targets, int64 [M], at the
/// target_positions, in ascending order. The choice is a function of (seed, epoch, i) alone.
class MaskedLines : public SampleSource {
 public:
  /// Lines [first, last) of `lines`, which must outlive it, as must `tokens`.
  MaskedLines(const TextLines& lines, int64_t first, int64_t last, const MaskingTokens& tokens,
              const MaskingOptions& options);

  int64_t size() const override { return last_ - first_; }
  Batch collate(const BatchRequest& request) const override;
  TargetCount targets() const override;
  /// Without every_epoch_anew it also covers the hidden tokens.
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  /// A token of a row to be predicted.
  struct HiddenToken {
    std::size_t column = 0;
    int64_t token = 0;
  };
  std::vector<HiddenToken> hide(int64_t index, int64_t epoch, std::span<int64_t> row) const;

  const TextLines& lines_;
  int64_t first_;
  int64_t last_;
  const MaskingTokens& tokens_;
  MaskingOptions options_;
  std::vector<bool> is_ordinary_;
  std::string fingerprint_;
};

/// Number of hidden tokens among `ordinary` ones.
int64_t masked_count(int64_t ordinary, double share);

}  // namespace ddp::train
