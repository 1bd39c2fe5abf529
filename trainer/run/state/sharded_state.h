// Between the shards of the training state that ranks hold under ZeRO and the whole tensors of a
// snapshot, which is the same under every strategy and on any number of ranks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/strategy/zero.h"
#include "trainer/run/state/shard_cut.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/snapshot/state_piece.h"

namespace ddp::train {

/// Divides `trained` between the ranks as distributed_config.strategy says; null for ddp, and on
/// one rank, which has nothing to divide. `averaged_over` as in ShardedDataParallel::Options.
std::unique_ptr<ZeroDataParallel> make_shards(const TrainedParameters& trained, ProcessGroup& group,
                                              const DistributedConfig& config, int averaged_over,
                                              FirstValues values);

/// The names of the parameters that one rank has to update as a whole.
std::set<std::string> whole_matrices(const TrainedParameters& trained);

/// The pieces of `trained` that this rank updates, in the groups of their parameters.
TrainedParameters pieces_of(const TrainedParameters& trained, const ShardedDataParallel& shards);

/// All calls are collectives of the same ranks in the same order.
class ShardedState {
 public:
  /// Both outlive it.
  ShardedState(ShardedDataParallel& shards, ProcessGroup& group) : shards_(shards), group_(group) {}

  /// `pieces` as this rank holds them; on rank 0 the whole tensors on the CPU that they and those
  /// of the other ranks make up, in the order of the parameters. Elsewhere empty.
  std::vector<NamedTensor> gather(const std::vector<NamedTensor>& pieces);
  /// What this rank saves of the tensors that are divided: boxes of whole rows, for which parts of
  /// rows at the cuts move between ranks. The values are those of `pieces`, not copies, but for
  /// such parts. Every call gives the same tensors. `tensors`: receives the tensors that the pieces
  /// of all ranks make up, in the order of the parameters.
  std::vector<StatePiece> own_pieces(const std::vector<NamedTensor>& pieces,
                                     std::vector<LogicalTensor>& tensors);
  /// The reverse: fills `pieces` from rank 0's `snapshot`; other ranks need none. What it lacks
  /// and `is_optional` says it may lack stays as it is. Throws UserError as
  /// OpenedSnapshot::load_into().
  void load_local_parts(const OpenedSnapshot* snapshot, const std::vector<NamedTensor>& pieces,
                        const std::function<bool(const std::string&)>& is_optional);

 private:
  /// A tensor that is divided, of any rank.
  struct Whole {
    std::size_t parameter = 0;
    std::string label;  ///< Its name, with {} for the parameter's.
    auto operator<=>(const Whole&) const = default;
  };
  Whole whole_of(const NamedTensor& piece) const;
  std::vector<Whole> wholes_of(const std::vector<NamedTensor>& pieces);
  std::string name_of(const Whole& whole) const;
  /// The tensors with that label, as ShardedDataParallel::exchange() takes them.
  std::vector<torch::Tensor> values_of(const std::string& label,
                                       const std::vector<NamedTensor>& pieces) const;
  std::size_t place_of(const Piece& piece) const;

  ShardedDataParallel& shards_;
  ProcessGroup& group_;
  std::optional<std::vector<Whole>> saved_;  // what own_pieces() was given: always the same
};

}  // namespace ddp::train
