#include "trainer/data/text/text_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/data/rows.h"
#include "trainer/runtime/files/sha256.h"

namespace ddp::train {

TextSamples::TextSamples(const TextLines& texts, const TextTargets& targets,
                         std::vector<int64_t> indices, const Options& options)
    : texts_(texts), targets_(targets), indices_(std::move(indices)), options_(options) {
  Sha256 sum;
  sum.update(texts.fingerprint());
  sum.update(targets.classes.data(), targets.classes.size() * sizeof(int64_t));
  sum.update(targets.values.data(), targets.values.size() * sizeof(float));
  sum.update(indices_.data(), indices_.size() * sizeof(int64_t));
  if (options.bucket_batches > 0)
    sum.update(fmt::format("buckets {} {}", options.bucket_batches, options.batch_size));
  fingerprint_ = sum.hex();
}

Batch TextSamples::collate(const BatchRequest& request) const {
  std::vector<std::vector<int32_t>> texts;
  std::vector<int64_t> seconds;
  for (const int64_t sample : request.samples) {
    const int64_t line = indices_[static_cast<std::size_t>(sample)];
    texts.push_back(texts_[line]);
    if (const auto second = texts_.second(line)) seconds.push_back(*second);
  }
  Batch batch = bert_batch(texts, options_.tokens, request.pinned, seconds);
  batch.tensors.emplace(kTargets, targets_of(request));
  batch.target_count = std::ssize(request.samples);
  return batch;
}

torch::Tensor TextSamples::targets_of(const BatchRequest& request) const {
  if (targets_.width == 0) {
    Rows<int64_t> classes(request.samples.size(), {}, request.pinned);
    for (std::size_t i = 0; i < request.samples.size(); ++i)
      classes[i].front() = label(request.samples[i]);
    return classes.tensor();
  }
  Rows<float> values(request.samples.size(), {targets_.width}, request.pinned);
  for (std::size_t i = 0; i < request.samples.size(); ++i) {
    const int64_t text = indices_[static_cast<std::size_t>(request.samples[i])];
    std::copy_n(targets_.values.begin() + text * targets_.width, targets_.width, values[i].begin());
  }
  return values.tensor();
}

int64_t TextSamples::length(int64_t index) const {
  return texts_.length(indices_[static_cast<std::size_t>(index)]);
}

int64_t TextSamples::label(int64_t index) const {
  return targets_.classes[static_cast<std::size_t>(indices_[static_cast<std::size_t>(index)])];
}

}  // namespace ddp::train
