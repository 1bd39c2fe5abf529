// Labelled texts as the samples of a classifier.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/sample_source.h"
#include "trainer/data/text/bert_batch.h"
#include "trainer/data/text/text_lines.h"

namespace ddp::train {

/// As bert_batch(); targets int64 [B], the labels.
class TextSamples : public SampleSource {
 public:
  struct Options {
    BertTokens tokens;
    int64_t bucket_batches = 0;
    int64_t batch_size = 1;  ///< With buckets, it determines the order.
  };
  /// Texts `indices`, in that order; `labels` of all texts. Both must outlive it.
  TextSamples(const TextLines& texts, const std::vector<int64_t>& labels,
              std::vector<int64_t> indices, const Options& options);

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Batch collate(const BatchRequest& request) const override;
  TargetCount targets() const override { return {}; }
  int64_t length(int64_t index) const override;
  int64_t bucket_batches() const override { return options_.bucket_batches; }
  const std::string& fingerprint() const override { return fingerprint_; }

  int64_t label(int64_t index) const;

 private:
  std::span<const int32_t> text(int64_t index) const;

  const TextLines& texts_;
  const std::vector<int64_t>& labels_;
  std::vector<int64_t> indices_;
  Options options_;
  std::string fingerprint_;
};

}  // namespace ddp::train
