#include "trainer/data/distributed_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "trainer/runtime/error.h"
#include "trainer/runtime/seed.h"

namespace ddp::train {

Permutation::Permutation(int64_t size, uint64_t key)
    : size_(static_cast<uint64_t>(size)), key_(key) {
  const auto bits = static_cast<unsigned>(std::bit_width(std::max<uint64_t>(size_, 2) - 1));
  half_bits_ = (bits + 1) / 2;
  half_mask_ = (uint64_t{1} << half_bits_) - 1;
}

uint64_t Permutation::encrypt(uint64_t x) const {
  constexpr uint64_t kRounds = 4;
  uint64_t left = x >> half_bits_;
  uint64_t right = x & half_mask_;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = left ^ (mix64(key_ + round, right) & half_mask_);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::operator()(int64_t i) const {
  auto x = static_cast<uint64_t>(i);
  do {
    x = encrypt(x);
  } while (x >= size_);
  return static_cast<int64_t>(x);
}

DistributedSampler::DistributedSampler(int64_t dataset_size, int64_t batch_size,
                                       int64_t micro_batches_per_step, uint64_t seed)
    : dataset_size_(dataset_size), global_batch_(batch_size * micro_batches_per_step), seed_(seed) {
  if (dataset_size_ >= global_batch_) return;
  const int64_t fits = dataset_size_ / micro_batches_per_step;
  throw UserError(fmt::format(
      "one step takes {} samples (trainer_config.batch_size {} x {} micro-batches on all ranks), "
      "but the training set has {}; use {} or more text",
      global_batch_, batch_size, micro_batches_per_step, dataset_size_,
      fits > 0
          ? fmt::format("trainer_config.batch_size={}, with trainer_config.global_batch_size={} "
                        "if that is set,",
                        fits, fits * micro_batches_per_step)
          : "trainer_config.batch_size=1 with fewer ranks or micro-batches "
            "(trainer_config.grad_accumulation_steps or global_batch_size)"));
}

DataCursor DistributedSampler::normalized(DataCursor cursor) const {
  if (cursor.position + global_batch_ <= dataset_size_) return cursor;
  return {cursor.epoch + 1, 0};
}

DataCursor DistributedSampler::next(DataCursor cursor) const {
  return normalized({cursor.epoch, cursor.position + global_batch_});
}

Permutation DistributedSampler::order(int64_t epoch) const {
  return {dataset_size_, data_order_seed(seed_, epoch)};
}

}  // namespace ddp::train
