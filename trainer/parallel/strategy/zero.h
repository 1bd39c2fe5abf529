// Stages 1 and 2 of ZeRO: every rank has all weights, but only its shards of the gradients and of
// the optimizer state.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "trainer/parallel/device/device_wait.h"
#include "trainer/parallel/strategy/sharded_data_parallel.h"

namespace ddp::train {

/// Gradients that a backward pass leaves in grad() are moved to a bucket; a full bucket is reduced
/// during the pass, each rank receiving its row. There are two tables for that: the third bucket
/// waits for the first one's.
///
/// Stage 1 reduces after the last micro-batch of a step; until then gradients accumulate in grad()
/// as under DistributedDataParallel: bitwise identical if that sums in rank order. Stage 2 reduces
/// each micro-batch and accumulates the results: bitwise identical to one process with all
/// micro-batches, whatever the number of ranks.
class ZeroDataParallel : public ShardedDataParallel {
 public:
  struct Options {
    bool every_micro_batch = false;  ///< Stage 2.
    int averaged_over = 1;           ///< Gradients are divided by it before they are added.
    double bucket_cap_mb = 25.0;
  };

  /// For two and more ranks. Checks that they have the same parameters (RunError otherwise), and
  /// copies rank 0's values to all or keeps theirs.
  ZeroDataParallel(std::vector<Parameter> parameters, ProcessGroup& group, Options options,
                   FirstValues values);

  void begin_micro_batch(bool last) override;
  /// Throws RunError if a parameter gets no gradient, or more than one.
  void backward(const torch::Tensor& loss) override;
  bool reduces_every_micro_batch() const override { return options_.every_micro_batch; }
  void skip_micro_batch(const std::function<torch::Tensor()>& forward) override;
  void share_weights() override;

  /// Makes begin_sharing_weights() asynchronous on a GPU, on a stream separate from training's: the
  /// forward pass waits for a unit's weights when it reaches the unit, and for the others when it
  /// begins. `units` as in FullyShardedDataParallel. The buffers of weights in transit are freed by
  /// the last unit.
  void overlap_gather_with_forward(const std::vector<std::vector<std::size_t>>& units);
  /// Call before the forward pass of a unit; see UnitHooks in trainer/model/blocks/model_unit.h.
  void before_forward(std::size_t unit) { wait_for_weights(buckets_of_unit_[unit]); }
  void begin_sharing_weights() override;
  void settle_weights() override;
  bool weights_are_on_their_way() const override { return on_their_way_; }
  void begin_inference() override { settle_weights(); }

 private:
  void plan(int64_t bucket_elements);
  void gradient_ready(std::size_t parameter);
  void begin_reducing();
  void reduce(std::size_t bucket);
  void pack(const Bucket& bucket, const torch::Tensor& table);
  void finish_reducing();
  /// All-gathers updated weights bucket by bucket; calls `taken` after each one.
  void gather_weights(TablePair& tables, const std::function<void(std::size_t bucket)>& taken);
  void send_own_row(TablePair& tables, std::size_t turn);
  void take_rows(TablePair& tables, std::size_t turn);
  void wait_for_weights(const std::vector<std::size_t>& buckets);

  const Options options_;
  std::vector<std::vector<std::size_t>> buckets_of_;          // of each parameter
  std::vector<std::vector<torch::Tensor>> weights_of_ranks_;  // weights that each rank updates
  TablePair tables_;
  bool reducing_ = false;
  std::size_t next_bucket_ = 0;
  std::vector<bool> arrived_;          // gradients in this reduction
  std::vector<std::size_t> missing_;   // gradients that each bucket still waits for
  std::vector<std::size_t> unpacked_;  // buckets that each gradient still has to enter

  std::vector<std::vector<std::size_t>> buckets_of_unit_;  // the last entry: buckets of no unit
  std::vector<std::size_t> sharing_order_;                 // a permutation of all buckets
  std::vector<ReadyEvent> weights_there_;                  // for buckets in transit
  TablePair weight_tables_;
  bool on_their_way_ = false;
};

}  // namespace ddp::train
