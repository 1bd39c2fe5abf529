#include "trainer/data/text/text_samples.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

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

SampleSpec TextSamples::spec() const {
  return {{c10::kLong, {options_.block_size}}, {c10::kLong, {}}};
}

void TextSamples::fill(int64_t index, int64_t /*epoch*/, const SampleRow& row) const {
  const int64_t text = indices_[static_cast<std::size_t>(index)];
  write_bert_row(texts_[text], options_.tokens, numbers_at(row.inputs, options_.block_size));
  const int64_t target = label(index);
  std::memcpy(row.targets, &target, sizeof target);
}

int64_t TextSamples::length(int64_t index) const {
  return static_cast<int64_t>(texts_[indices_[static_cast<std::size_t>(index)]].size());
}

int64_t TextSamples::label(int64_t index) const {
  return labels_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(index)])];
}

}  // namespace ddp::train
