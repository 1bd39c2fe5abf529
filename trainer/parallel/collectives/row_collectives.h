// Collectives over tables with one row for each rank: what sharded training communicates by.
#pragma once

#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace ddp::train {

/// A collective in flight. Wait for it on the thread that started it; on a GPU the queue waits, not
/// the host.
class RowWork {
 public:
  RowWork() = default;
  explicit RowWork(
      c10::intrusive_ptr<c10d::Work> work, std::function<void()> finish = [] {})
      : work_(std::move(work)), finish_(std::move(finish)) {}

  /// Nothing when there is none, or it was waited for. Throws what went wrong.
  void wait();

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> finish_;
};

/// All ranks call alike and in the same order. The tensors are contiguous, and neither read nor
/// written by others until the work has been waited for.
class RowCollectives {
 public:
  virtual ~RowCollectives() = default;

  /// `own` [n] becomes the sum of row `rank` of all ranks' `table` [ranks, n]; with `add`, that is
  /// added to it. On CPUs the terms are added in the order of the ranks, after what `own` held.
  virtual RowWork reduce_scatter(const torch::Tensor& table, const torch::Tensor& own,
                                 bool add) = 0;
  /// Row `rank` of `table` [ranks, n] is filled in on each rank; the others' rows are on return.
  virtual RowWork all_gather(const torch::Tensor& table) = 0;
  /// The same for rows in pieces: for each rank the tensors that its row consists of, each dense in
  /// memory. Returns nullopt if this takes tables alone.
  virtual std::optional<RowWork> gather_pieces(
      const std::vector<std::vector<torch::Tensor>>& /*rows*/) {
    return std::nullopt;
  }
};

/// By NCCL or Gloo. Gloo's own reduce-scatter is an all-reduce in disguise, which sends twice the
/// bytes in an order of its own: rows are exchanged instead, and added here.
std::unique_ptr<RowCollectives> make_row_collectives(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                     bool nccl);

}  // namespace ddp::train
