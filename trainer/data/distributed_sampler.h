// Assigns training samples to positions: a pure function of (seed, epoch, position), stateless and
// without tables.
#pragma once

#include <cstdint>

namespace ddp::train {

/// A pseudo-random permutation of [0, size), different for each key, computed element by element: a
/// four-round Feistel network on the next even number of bits, followed until it falls below `size`
/// (cycle walking; J. Black, P. Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
/// Seeking anywhere costs the same as the next element.
class Permutation {
 public:
  Permutation(int64_t size, uint64_t key);
  /// 0 <= i < size.
  int64_t operator()(int64_t i) const;
  int64_t size() const { return static_cast<int64_t>(size_); }
  uint64_t key() const { return key_; }

 private:
  uint64_t encrypt(uint64_t x) const;

  uint64_t size_;
  uint64_t key_;
  unsigned half_bits_;
  uint64_t half_mask_;
};

/// The position of training in the data: `position` samples of epoch `epoch` (from 0) have been
/// consumed by finished steps.
struct DataCursor {
  int64_t epoch = 0;
  int64_t position = 0;
  bool operator==(const DataCursor&) const = default;
  /// The epoch's number for messages, from 1: the current one, or the one that has just ended.
  int64_t epoch_number() const { return position == 0 ? epoch : epoch + 1; }
};

/// Assigns the samples of each epoch to global batches, each consisting of all ranks' micro-batches
/// of one optimizer step, in turn.
///
/// Micro-batch g of a step (g = micro * world_size + rank) takes the batch_size samples at
/// positions [cursor.position + g * batch_size, ...) of the epoch's permutation: the same samples
/// make up a step, in the same micro-batches, whether 2 ranks share them or 1 process takes both in
/// turn. Samples at the end of an epoch that do not fill a global batch are left out (different
/// ones each epoch), so every rank has the same number of steps.
class DistributedSampler {
 public:
  /// Throws UserError if dataset_size < global_batch.
  DistributedSampler(int64_t dataset_size, int64_t batch_size, int64_t micro_batches_per_step,
                     uint64_t seed);

  int64_t steps_per_epoch() const { return dataset_size_ / global_batch_; }
  int64_t global_batch() const { return global_batch_; }
  /// Samples of an epoch that do not fill a global batch.
  int64_t left_out() const { return dataset_size_ % global_batch_; }

  /// Returns the cursor itself, or the start of the next epoch if no whole global batch is left in
  /// this one.
  DataCursor normalized(DataCursor cursor) const;
  /// Returns the cursor after the step that starts at `cursor`.
  DataCursor next(DataCursor cursor) const;
  /// Permutation of the samples in epoch `epoch`.
  Permutation order(int64_t epoch) const;

 private:
  int64_t dataset_size_;
  int64_t global_batch_;
  uint64_t seed_;
};

}  // namespace ddp::train
