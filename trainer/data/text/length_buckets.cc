#include "trainer/data/text/length_buckets.h"

#include <algorithm>

#include "trainer/runtime/seed.h"

namespace ddp::train {
namespace {

std::vector<int64_t> in_order(const Permutation& order, int64_t first, int64_t count) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < count; ++i) samples.push_back(order(first + i));
  return samples;
}

}  // namespace

std::vector<int64_t> samples_of_batch(const SampleSource& source, const Permutation& order,
                                      int64_t position, int64_t batch_size) {
  if (source.bucket_batches() == 0) return in_order(order, position, batch_size);
  const int64_t whole = order.size() / batch_size;  // what is left is too few for a micro-batch
  const int64_t stretch = position / batch_size / source.bucket_batches();
  const int64_t first = stretch * source.bucket_batches();
  const int64_t batches = std::min(source.bucket_batches(), whole - first);
  auto samples = in_order(order, first * batch_size, batches * batch_size);
  std::stable_sort(samples.begin(), samples.end(),
                   [&source](int64_t a, int64_t b) { return source.length(a) < source.length(b); });
  const Permutation places(batches, bucket_seed(order.key(), stretch));
  const auto from = samples.begin() + places(position / batch_size - first) * batch_size;
  return {from, from + batch_size};
}

}  // namespace ddp::train
