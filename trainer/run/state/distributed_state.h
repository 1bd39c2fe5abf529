// Between what ranks hold of the training state and its logical tensors, which snapshots have: the
// same under every strategy and on any number of ranks.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trainer/layout/tensor_layout.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/mesh/mesh.h"
#include "trainer/parallel/strategy/sharded_data_parallel.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/snapshot/state_piece.h"

namespace ddp::train {

/// The name of the parameter that a tensor of the training state belongs to and is divided like:
/// P of "model.P", "optimizer.P.exp_avg", "ema.P".
std::string parameter_of(const std::string& tensor);

/// `held`: tensors of the training state as this rank holds them, in the order of Trainer::state().
/// Calls are collectives of all ranks in the same order, unless said otherwise.
class DistributedState {
 public:
  /// `layouts`: of the parameters where a copy of the model is divided between ranks; empty where
  /// every rank has all of it. `shards`: null where ranks hold no shards. All outlive this.
  DistributedState(TensorLayouts layouts, Mesh& mesh, ShardedDataParallel* shards,
                   torch::Device device)
      : layouts_(std::move(layouts)), mesh_(mesh), shards_(shards), device_(device) {}

  /// Whether some rank lacks a part of the state.
  bool is_divided() const { return shards_ != nullptr || !layouts_.empty(); }
  const TensorLayouts& layouts() const { return layouts_; }
  /// Not a collective.
  TensorLayout layout_of(const NamedTensor& held) const;

  /// On rank 0 the logical tensors, bit for bit what the ranks hold; elsewhere empty. If nothing is
  /// divided, `held` on every rank. What is divided is gathered on the CPU, in memory that returns
  /// to the system with it; tensors of `held` are released one by one. For what needs a whole
  /// model: a snapshot in one file, samples, histograms.
  std::vector<NamedTensor> gather(std::vector<NamedTensor> held) const;

  /// Fills `held` from a snapshot. Each rank that has opened it reads its own part if all ranks
  /// have; otherwise rank 0 sends one logical tensor after the other. Padding becomes 0. What the
  /// snapshot lacks and `is_optional` permits stays as it is. Returns whether each rank has read.
  /// Throws UserError as OpenedSnapshot::load_into().
  using IsOptional = std::function<bool(const std::string& name)>;
  bool load(const OpenedSnapshot* snapshot, const std::vector<NamedTensor>& held,
            const IsOptional& is_optional) const;
  /// The same, always from rank 0's.
  void load_from_rank_zero(const OpenedSnapshot* snapshot, const std::vector<NamedTensor>& held,
                           const IsOptional& is_optional) const;

  /// What this rank saves, so that all ranks save each element once: of what several hold alike,
  /// each an equal share. Boxes of whole rows, for which parts of rows move between ranks of ZeRO;
  /// otherwise the values are those of `held`, not copies. Every call gives the same boxes.
  /// `tensors`: receives the logical tensors of all ranks, in the order of `held`, then of the
  /// parameters.
  std::vector<StatePiece> own_pieces(const std::vector<NamedTensor>& held,
                                     std::vector<LogicalTensor>& tensors);

 private:
  struct Entry;  ///< A logical tensor and its place in the order.
  std::vector<Entry> entries_of_all(const std::vector<NamedTensor>& held,
                                    ProcessGroup& group) const;
  std::vector<NamedTensor> counted(const std::vector<NamedTensor>& held, bool sharded) const;
  std::vector<StatePiece> pieces_of_shards(const std::vector<NamedTensor>& held) const;
  std::vector<StatePiece> logical_pieces(std::vector<StatePiece> pieces) const;

  const TensorLayouts layouts_;
  Mesh& mesh_;
  ShardedDataParallel* shards_;
  const torch::Device device_;
  // What own_pieces() has found, always the same: all tensors, and those that ZeRO divides.
  std::vector<LogicalTensor> saved_;
  std::set<std::string> sharded_;
};

}  // namespace ddp::train
