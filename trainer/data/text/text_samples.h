// Labelled texts as the samples of a classifier.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/text/bert_row.h"
#include "trainer/data/sample_source.h"
#include "trainer/data/text/text_lines.h"

namespace ddp::train {

/// Row: int64 [block_size], the text as write_bert_row() has it, target int64 [], the label.
class TextSamples : public SampleSource {
 public:
  struct Options {
    int64_t block_size = 0;  ///< Tokens of a row, [CLS] and [SEP] among them.
    BertTokens tokens;
    int64_t bucket_batches = 0;
    int64_t batch_size = 1;  ///< With buckets, a part of what makes the order.
  };
  /// Texts `indices`, in that order; `labels` of all texts. Both outlive it.
  TextSamples(const TextLines& texts, const std::vector<int64_t>& labels,
              std::vector<int64_t> indices, const Options& options);

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  SampleSpec spec() const override;
  void fill(int64_t index, int64_t epoch, const SampleRow& row) const override;
  int64_t length(int64_t index) const override;
  int64_t bucket_batches() const override { return options_.bucket_batches; }
  const std::string& fingerprint() const override { return fingerprint_; }

  int64_t label(int64_t index) const;

 private:
  const TextLines& texts_;
  const std::vector<int64_t>& labels_;
  std::vector<int64_t> indices_;
  Options options_;
  std::string fingerprint_;
};

}  // namespace ddp::train
