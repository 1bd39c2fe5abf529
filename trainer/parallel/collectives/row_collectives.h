// The collectives of sharded training, over tables with one row per rank.
#pragma once

#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace ddp::train {

/// A collective in flight. Wait for it on the thread that started it; on a GPU the stream waits,
/// not the host.
class RowWork {
 public:
  RowWork() = default;
  explicit RowWork(
      c10::intrusive_ptr<c10d::Work> work, std::function<void()> finish = [] {})
      : work_(std::move(work)), finish_(std::move(finish)) {}

  /// Does nothing if there is none, or it was waited for. Rethrows the collective's error.
  void wait();

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> finish_;
};

/// All ranks must make the same calls in the same order. Tensors must be contiguous, and must be
/// neither read nor written until the work has been waited for.
class RowCollectives {
 public:
  virtual ~RowCollectives() = default;

  /// `own` [n] becomes the sum of row `rank` of all ranks' `table` [ranks, n]; with `add`, that is
  /// added to it. On CPUs the terms are added in rank order, after the former `own`.
  virtual RowWork reduce_scatter(const torch::Tensor& table, const torch::Tensor& own,
                                 bool add) = 0;
  /// Exchanges the rows of `table` [ranks, n], of which each rank has filled in row `rank`.
  virtual RowWork all_gather(const torch::Tensor& table) = 0;
  /// The same for rows in pieces: for each rank the tensors that its row consists of, each dense in
  /// memory. Returns nullopt if only tables are supported.
  virtual std::optional<RowWork> gather_pieces(
      const std::vector<std::vector<torch::Tensor>>& /*rows*/) {
    return std::nullopt;
  }
};

/// Uses NCCL or Gloo. Gloo's own reduce-scatter is an all-reduce in disguise, which sends twice the
/// bytes and sums in its own order: rows are exchanged instead and added here.
std::unique_ptr<RowCollectives> make_row_collectives(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                     bool nccl);

/// Sends `sent` rows of `in` to each rank; `out` has room for those `received`.
c10::intrusive_ptr<c10d::Work> all_to_all_by(c10d::Backend& backend, torch::Tensor out,
                                             torch::Tensor in, std::vector<int64_t> sent,
                                             std::vector<int64_t> received);

}  // namespace ddp::train
