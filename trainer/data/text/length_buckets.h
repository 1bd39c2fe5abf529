// Micro-batches of samples of similar lengths, which reduces padding.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/distributed_sampler.h"
#include "trainer/data/sample_source.h"

namespace ddp::train {

/// Returns the `batch_size` samples of the micro-batch that begins at `position` of the epoch, a
/// multiple of `batch_size`.
///
/// Without buckets, those at [position, position + batch_size) of `order`. With buckets, the
/// positions are divided into stretches of bucket_batches() micro-batches; the samples of a stretch
/// are sorted by length, and its micro-batches are shuffled. The content and order of a stretch are
/// a function of `order` and `batch_size` alone: the same for any number of ranks, and after a
/// resume.
std::vector<int64_t> samples_of_batch(const SampleSource& source, const Permutation& order,
                                      int64_t position, int64_t batch_size);

}  // namespace ddp::train
