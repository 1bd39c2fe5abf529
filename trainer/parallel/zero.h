// ZeRO, stages 1 and 2 (S. Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion
// parameter models", 2020): every rank has all weights, and of the gradients and of what the
// optimizer keeps the shards that it updates.
#pragma once

#include <torch/torch.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/parallel/gradient_sync.h"
#include "trainer/parallel/process_group.h"
#include "trainer/parallel/row_collectives.h"
#include "trainer/parallel/shard_plan.h"

namespace ddp::train {

/// A shard of this rank's. A dense tensor of its elements in the order in which they lie in memory,
/// or, for a whole parameter, of the parameter's shape.
struct OwnShard {
  Shard shard;
  torch::Tensor value;     ///< A view of the parameter.
  torch::Tensor gradient;  ///< float32, of the ranks' gradients; zero it before each step.
};

/// What a backward pass leaves in a parameter's grad() goes into a bucket and is freed; a full
/// bucket is reduced while the pass goes on, each rank receiving its row. There are two tables for
/// that: the third bucket waits for the first one's.
///
/// Stage 1 reduces after the last micro-batch of a step, up to which gradients add up in grad() as
/// under DistributedDataParallel: the same bits, where that sums in the order of the ranks. Stage 2
/// reduces each micro-batch and adds it to what is there: the bits of one process that has all
/// micro-batches, whatever the number of ranks.
class ShardedDataParallel : public GradientSync {
 public:
  struct Parameter {
    std::string name;
    torch::Tensor tensor;
    bool whole = false;  ///< One rank updates all of it.
  };
  struct Options {
    bool every_micro_batch = false;  ///< Stage 2.
    int averaged_over = 1;           ///< Gradients are divided by it before they are added.
    double bucket_cap_mb = 25.0;
  };

  /// For two and more ranks. Checks that they have the same parameters (RunError otherwise), and
  /// gives all of them rank 0's values or leaves theirs.
  ShardedDataParallel(std::vector<Parameter> parameters, ProcessGroup& group, Options options,
                      FirstValues values);
  ~ShardedDataParallel() override;
  ShardedDataParallel(const ShardedDataParallel&) = delete;
  ShardedDataParallel& operator=(const ShardedDataParallel&) = delete;

  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Never empty: a rank that has no part in the parameters holds no element of the first one.
  const std::vector<OwnShard>& own() const { return own_; }
  /// The shards of each rank, this one's as in own() but for an empty one.
  std::vector<std::vector<Shard>> shards_of_ranks() const;
  /// For what else is exchanged between the ranks that hold shards.
  RowCollectives& rows() { return *rows_; }

  void begin_micro_batch(bool last) override;
  /// Throws RunError when a parameter gets no gradient, or more than one.
  void backward(const torch::Tensor& loss) override;
  bool reduces_every_micro_batch() const override { return options_.every_micro_batch; }
  const char* collective_name() const override { return "gradients_reduce_scatter"; }
  void leave_out_micro_batch() override;
  /// `gradients`: those of own().
  torch::Tensor global_norm(const std::vector<torch::Tensor>& gradients) override;
  void combine_found_inf(torch::Tensor& found_inf) override;
  void share_weights() override;
  void measure_times() override { measures_ = true; }
  /// On CPUs only.
  std::optional<SyncTimes> times() override;

  /// Sends every rank's `values` to every rank; values[i] is shaped like own()[i], or undefined if
  /// this rank has nothing to send. `take` is called once for each shard of each rank, with garbage
  /// for what was undefined, and must copy. A collective.
  void exchange(const std::vector<torch::Tensor>& values,
                const std::function<void(int rank, const Shard&, const torch::Tensor&)>& take);
  /// The elements of `shard` in a tensor that lies in memory as its parameter does.
  torch::Tensor part_of(const torch::Tensor& tensor, const Shard& shard) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Bucket {
    ShardBucket plan;
    std::size_t first_own;  ///< Its own shards begin there in own_.
    torch::Tensor gradient_row;
  };
  struct Table {
    torch::Tensor rows;
    RowWork work;
  };

  void plan(int64_t bucket_elements);
  void hold_own_shards(Bucket& bucket);
  void list_own_blocks();
  void watch_gradients();
  void gradient_ready(std::size_t parameter);
  void begin_reducing();
  void reduce(std::size_t bucket);
  void pack(const Bucket& bucket, const torch::Tensor& table);
  void gradient_packed(std::size_t parameter);
  void finish_reducing();
  torch::Tensor table_for(std::size_t bucket);
  void fill_own_row(std::size_t bucket, const std::vector<torch::Tensor>& values);
  void take_rows(std::size_t bucket,
                 const std::function<void(int, const Shard&, const torch::Tensor&)>& take);
  torch::Tensor as_shard(const torch::Tensor& row, int64_t at, const Shard& shard) const;

  std::vector<Parameter> parameters_;
  ProcessGroup& group_;
  const Options options_;
  std::shared_ptr<RowCollectives> rows_;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<std::size_t>> buckets_of_;  // of each parameter
  std::vector<OwnShard> own_;
  torch::Tensor own_blocks_;  // of own_, their places among all blocks of the gradient norm
  int64_t blocks_ = 0;
  std::vector<std::function<void()>> unhook_;

  std::array<Table, 2> tables_;  // used in turn
  bool reducing_ = false;
  std::size_t next_bucket_ = 0;
  std::vector<bool> arrived_;          // gradients of this reduction
  std::vector<std::size_t> missing_;   // gradients that each bucket still waits for
  std::vector<std::size_t> unpacked_;  // buckets that each gradient is still to go to

  bool measures_ = false;
  Clock::time_point backward_began_, first_reduced_, last_gradient_, reduced_;
};

}  // namespace ddp::train
