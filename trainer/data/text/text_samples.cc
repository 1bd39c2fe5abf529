#include "trainer/data/text/text_samples.h"

#include <fmt/format.h>

#include <utility>

#include "trainer/data/rows.h"
#include "trainer/runtime/files/sha256.h"

namespace ddp::train {

TextSamples::TextSamples(const TextLines& texts, const std::vector<int64_t>& labels,
                         std::vector<int64_t> indices, const Options& options)
    : texts_(texts), labels_(labels), indices_(std::move(indices)), options_(options) {
  Sha256 sum;
  sum.update(texts.fingerprint());
  sum.update(labels_.data(), labels_.size() * sizeof(int64_t));
  sum.update(indices_.data(), indices_.size() * sizeof(int64_t));
  if (options.bucket_batches > 0)
    sum.update(fmt::format("buckets {} {}", options.bucket_batches, options.batch_size));
  fingerprint_ = sum.hex();
}

Batch TextSamples::collate(const BatchRequest& request) const {
  std::vector<std::span<const int32_t>> texts;
  std::vector<int64_t> labels;
  for (const int64_t sample : request.samples) {
    texts.push_back(text(sample));
    labels.push_back(label(sample));
  }
  Batch batch = bert_batch(texts, options_.tokens, request.pinned);
  batch.tensors.emplace(kTargets, tensor_of<int64_t>(labels, request.pinned));
  batch.target_count = std::ssize(labels);
  return batch;
}

int64_t TextSamples::length(int64_t index) const {
  return static_cast<int64_t>(text(index).size());
}

std::span<const int32_t> TextSamples::text(int64_t index) const {
  return texts_[indices_[static_cast<std::size_t>(index)]];
}

int64_t TextSamples::label(int64_t index) const {
  return labels_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(index)])];
}

}  // namespace ddp::train
