// Micro-batches of samples of like lengths, so that little of them is padding.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/distributed_sampler.h"
#include "trainer/data/sample_source.h"

namespace ddp::train {

/// The `batch_size` samples of the micro-batch that begins at `position` of the epoch, a multiple
/// of `batch_size`.
///
/// Without buckets those at [position, position + batch_size) of `order`. With them the positions
/// are cut into stretches of bucket_batches() micro-batches; the samples of a stretch are sorted by
/// length, and the micro-batches that they make are put in a random order. What a stretch holds and
/// how it is sorted is a function of `order` and `batch_size` alone: the same for any number of
/// ranks, and after a resume.
std::vector<int64_t> samples_of_batch(const SampleSource& source, const Permutation& order,
                                      int64_t position, int64_t batch_size);

}  // namespace ddp::train
