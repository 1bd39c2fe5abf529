// Labelled texts as the samples of a classifier.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/sample_source.h"
#include "trainer/data/text/bert_batch.h"
#include "trainer/data/text/text_lines.h"

namespace ddp::train {

/// Splits samples by class: of each label the share, rounded, is for training, with at least one
/// sample in either part where there are two; which ones depends on the seed. A share of 1 or 0
/// puts all in one part. `labels` are in [0, classes).
SampleSplit split_by_label(const std::vector<int64_t>& labels, int64_t classes,
                           double training_share, uint64_t seed);

/// What a model is to answer to each of some texts.
struct TextTargets {
  std::vector<int64_t> classes = {};  ///< The class of each; empty: there are values.
  std::vector<float> values = {};     ///< `width` numbers of each, one text after the other.
  int64_t width = 0;
};

/// As bert_batch(); targets int64 [B], the classes, or float32 [B, width].
class TextSamples : public SampleSource {
 public:
  struct Options {
    BertTokens tokens;
    int64_t bucket_batches = 0;
    int64_t batch_size = 1;  ///< With buckets, it determines the order.
  };
  /// Texts `indices`, in that order; `targets` of all texts. Both must outlive it.
  TextSamples(const TextLines& texts, const TextTargets& targets, std::vector<int64_t> indices,
              const Options& options);

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Batch collate(const BatchRequest& request) const override;
  TargetCount targets() const override { return {}; }
  int64_t length(int64_t index) const override;
  int64_t bucket_batches() const override { return options_.bucket_batches; }
  const std::string& fingerprint() const override { return fingerprint_; }

  /// The class of a sample, where there are classes.
  int64_t label(int64_t index) const;

 private:
  torch::Tensor targets_of(const BatchRequest& request) const;

  const TextLines& texts_;
  const TextTargets& targets_;
  std::vector<int64_t> indices_;
  Options options_;
  std::string fingerprint_;
};

}  // namespace ddp::train
