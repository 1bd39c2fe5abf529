#include "trainer/data/text/text_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/data/distributed_sampler.h"
#include "trainer/data/rows.h"
#include "trainer/runtime/files/sha256.h"
#include "trainer/runtime/seed.h"

namespace ddp::train {
namespace {

/// How many of so many samples of a class are for training.
int64_t training_count(int64_t samples, double share) {
  if (share <= 0.0) return 0;
  if (share >= 1.0 || samples < 2) return samples;
  const int64_t rounded = std::llround(static_cast<double>(samples) * share);
  return std::clamp<int64_t>(rounded, 1, samples - 1);
}

}  // namespace

SampleSplit split_by_label(const std::vector<int64_t>& labels, int64_t classes,
                           double training_share, uint64_t seed) {
  std::vector<std::vector<int64_t>> by_label(static_cast<std::size_t>(classes));
  for (std::size_t i = 0; i < labels.size(); ++i)
    by_label[static_cast<std::size_t>(labels[i])].push_back(static_cast<int64_t>(i));
  SampleSplit split;
  for (int64_t label = 0; label < classes; ++label) {
    const auto& samples = by_label[static_cast<std::size_t>(label)];
    const auto count = static_cast<int64_t>(samples.size());
    if (count == 0) continue;
    const Permutation order(count, split_seed(seed, label));
    const int64_t training = training_count(count, training_share);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t sample = samples[static_cast<std::size_t>(order(i))];
      (i < training ? split.training : split.evaluation).push_back(sample);
    }
  }
  std::sort(split.training.begin(), split.training.end());
  std::sort(split.evaluation.begin(), split.evaluation.end());
  return split;
}

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
