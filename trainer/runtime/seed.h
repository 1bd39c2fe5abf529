// Every random number of a run is a function of (seed, step, micro-batch) or (seed, epoch), never
// of process history.
#pragma once

#include <cstdint>

namespace ddp::train {

/// One round of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
/// 2014).
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

constexpr uint64_t mix64(uint64_t a, uint64_t b) { return mix64(mix64(a) ^ b); }

/// The purpose of a derived generator; no two share a stream.
enum class Stream : uint64_t {
  kInit = 1,
  kDropout = 2,
  kDataOrder = 3,
  kSample = 4,
  kMasking = 5,
  kAugment = 6,
  kSplit = 7,
  kBuckets = 8
};

/// Seed for weight initialization.
constexpr uint64_t init_seed(uint64_t seed) {
  return mix64(mix64(seed, static_cast<uint64_t>(Stream::kInit)), 0);
}

/// Seed of all dropout in micro-batch `micro_batch` of optimizer step `step`; micro-batches are
/// numbered over all ranks, so that 2 ranks and 1 process with 2 micro-batches draw the same masks.
constexpr uint64_t dropout_seed(uint64_t seed, int64_t step, int64_t micro_batch) {
  return mix64(
      mix64(mix64(seed, static_cast<uint64_t>(Stream::kDropout)), static_cast<uint64_t>(step)),
      static_cast<uint64_t>(micro_batch));
}

/// Seed of the dropout in one layer of a micro-batch with this dropout_seed().
constexpr uint64_t layer_seed(uint64_t dropout_seed, int64_t layer) {
  return mix64(dropout_seed, static_cast<uint64_t>(layer));
}

/// Seed of the text that is sampled after optimizer step `step`.
constexpr uint64_t sample_seed(uint64_t seed, int64_t step) {
  return mix64(mix64(seed, static_cast<uint64_t>(Stream::kSample)), static_cast<uint64_t>(step));
}

/// Seed of the order of the training samples in epoch `epoch`.
constexpr uint64_t data_order_seed(uint64_t seed, int64_t epoch) {
  return mix64(mix64(seed, static_cast<uint64_t>(Stream::kDataOrder)),
               static_cast<uint64_t>(epoch));
}

/// Seed of the tokens hidden in training sample `sample` in epoch `epoch`.
constexpr uint64_t masking_seed(uint64_t seed, int64_t epoch, int64_t sample) {
  return mix64(
      mix64(mix64(seed, static_cast<uint64_t>(Stream::kMasking)), static_cast<uint64_t>(epoch)),
      static_cast<uint64_t>(sample));
}

/// Seed of the augmentation of training sample `sample` in epoch `epoch`.
constexpr uint64_t augment_seed(uint64_t seed, int64_t epoch, int64_t sample) {
  return mix64(
      mix64(mix64(seed, static_cast<uint64_t>(Stream::kAugment)), static_cast<uint64_t>(epoch)),
      static_cast<uint64_t>(sample));
}

/// Seed of the choice of training samples of class `label`.
constexpr uint64_t split_seed(uint64_t seed, int64_t label) {
  return mix64(mix64(seed, static_cast<uint64_t>(Stream::kSplit)), static_cast<uint64_t>(label));
}

/// Seed of the order of the micro-batches that were sorted together; `key` is that of the epoch's
/// permutation.
constexpr uint64_t bucket_seed(uint64_t key, int64_t stretch) {
  return mix64(mix64(key, static_cast<uint64_t>(Stream::kBuckets)), static_cast<uint64_t>(stretch));
}

}  // namespace ddp::train
