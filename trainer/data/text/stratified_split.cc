#include "trainer/data/text/stratified_split.h"

#include <algorithm>
#include <cmath>

#include "trainer/data/distributed_sampler.h"
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

}  // namespace ddp::train
