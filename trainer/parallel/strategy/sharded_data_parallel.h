// The common base of all stages of ZeRO (S. Rajbhandari et al., "ZeRO: Memory optimizations toward
// training trillion parameter models", 2020): ranks that update shards of the parameters.
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

#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/collectives/row_collectives.h"
#include "trainer/parallel/strategy/gradient_sync.h"
#include "trainer/parallel/strategy/shard_plan.h"

namespace ddp::train {

/// One of this rank's shards: a dense tensor of its elements in memory order or, for a whole
/// parameter, of the parameter's shape.
struct OwnShard {
  Shard shard;
  torch::Tensor value;     ///< Updated by the optimizer.
  torch::Tensor gradient;  ///< float32, of the ranks' gradients; zero it before each step. Not
                           ///< defined for a frozen parameter.
};

/// Two buffers for buckets in transit, used in turn, as large as the largest bucket; allocated from
/// the first use to free().
class TablePair {
 public:
  /// A table of `rows` times `row` elements for the `turn`-th bucket, once the one before the last
  /// is done.
  torch::Tensor take(std::size_t turn, int64_t rows, int64_t row, int64_t longest_row,
                     const torch::TensorOptions& options);
  void send(std::size_t turn, RowWork work) { of(turn).work = std::move(work); }
  void wait();
  void free();

 private:
  struct Table {
    torch::Tensor memory;
    RowWork work;
  };
  Table& of(std::size_t turn) { return tables_[turn % tables_.size()]; }

  std::array<Table, 2> tables_;
};

/// Knows which rank holds what. How gradients get into the shards, and weights to all ranks, is up
/// to the stage.
class ShardedDataParallel : public GradientSync {
 public:
  struct Parameter {
    std::string name;
    torch::Tensor tensor;
    bool whole = false;  ///< One rank updates all of it.
  };

  ~ShardedDataParallel() override;
  ShardedDataParallel(const ShardedDataParallel&) = delete;
  ShardedDataParallel& operator=(const ShardedDataParallel&) = delete;

  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Never without trained ones: a rank without any share of them holds zero elements of the first.
  const std::vector<OwnShard>& own() const { return own_; }
  /// The shards of each rank; this rank's as in own(), without an empty one.
  std::vector<std::vector<Shard>> shards_of_ranks() const;
  /// For other exchanges between the ranks that hold shards.
  RowCollectives& rows() { return *rows_; }

  const char* collective_name() const override { return "gradients_reduce_scatter"; }
  void measure_times() override { measures_ = true; }
  /// On CPUs only.
  std::optional<SyncTimes> times() override;

  /// Returns the elements of `shard` in a tensor with its parameter's memory layout.
  torch::Tensor part_of(const torch::Tensor& tensor, const Shard& shard) const;

 protected:
  using Clock = std::chrono::steady_clock;
  struct Bucket {
    ShardBucket plan;
    std::size_t first_own = 0;   ///< Index of its first shard in own_.
    torch::Tensor gradient_row;  ///< Undefined for frozen parameters.
  };

  /// For two and more ranks. Checks that they have the same parameters (RunError otherwise).
  ShardedDataParallel(std::vector<Parameter> parameters, ProcessGroup& group);

  std::vector<ShardedSize> sizes() const;
  /// Appends to buckets_. `value_of(shard, place in the row)`.
  void add_bucket(ShardBucket plan, bool trained,
                  const std::function<torch::Tensor(const Shard&, int64_t)>& value_of);
  /// Call after the last bucket.
  void end_plan();
  /// Registers `arrived` to be called on the backward pass's thread for each gradient of that
  /// parameter.
  void watch_gradient(std::size_t parameter, std::function<void()> arrived);
  /// Returns a view [n] of a table's row, from `at` on, shaped as OwnShard's `shard`.
  torch::Tensor as_shard(const torch::Tensor& row, int64_t at, const Shard& shard) const;
  const std::vector<Shard>& own_part_of(const Bucket& bucket) const {
    return bucket.plan.of_rank[static_cast<std::size_t>(group_.rank())];
  }
  torch::Tensor table_for(TablePair& tables, std::size_t turn, std::size_t bucket) const;
  /// Writes the parameter's gradient, in the parameter's memory layout and divided by
  /// `averaged_over`, to `to`; zeros if a custom function has returned none.
  void pack_gradient(const Shard& shard, const torch::Tensor& to, int averaged_over) const;

  std::vector<Parameter> parameters_;
  ProcessGroup& group_;
  std::shared_ptr<RowCollectives> rows_;
  std::vector<Bucket> buckets_;
  std::vector<OwnShard> own_;
  Clock::time_point backward_began_, first_reduced_, last_gradient_, reduced_;

 private:
  std::vector<std::function<void()>> unhook_;
  bool measures_ = false;
};

/// Calls `visit(shard, place in the row)`.
template <class Visit>
void for_each_in_row(const std::vector<Shard>& shards, const Visit& visit) {
  int64_t at = 0;
  for (const Shard& shard : shards) {
    visit(shard, at);
    at += padded_size(shard);
  }
}

}  // namespace ddp::train
