// Between the parts of the training state that ranks hold of a divided model and the whole tensors
// of a snapshot, which is the same under every division.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/model/parameter_cut.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/mesh/mesh.h"
#include "trainer/snapshot/snapshot.h"

namespace ddp::train {

/// The name of the parameter that a tensor of the training state belongs to and shares its cut
/// with: P of "model.P", "optimizer.P.exp_avg", "ema.P".
std::string parameter_of(const std::string& tensor);

/// All calls are collectives of the same ranks in the same order; `held` are tensors of the
/// training state as this rank holds them, each of a parameter that has a cut.
class CutState {
 public:
  /// `mesh` outlives it.
  CutState(ParameterCuts cuts, Mesh& mesh) : cuts_(std::move(cuts)), mesh_(mesh) {}

  /// Whether this rank has all of a tensor of the training state.
  bool holds_whole(const std::string& tensor) const;
  /// On rank 0 of the world the whole tensors, on the CPU, in the order in which the ranks of the
  /// model have them; elsewhere empty. Bit for bit what the ranks hold. For data coordinate 0;
  /// nothing happens on other ranks. Their memory goes back to the system with them; those of
  /// `held` are let go of one by one.
  std::vector<NamedTensor> gather(std::vector<NamedTensor> held);
  /// The reverse: fills `held` on every rank from rank 0's `snapshot`; other ranks that have opened
  /// it, too, read their part from there if all of them have. What it lacks and `is_optional` says
  /// it may lack stays as it is; padding becomes 0. Throws UserError as
  /// OpenedSnapshot::load_into().
  void load_local_parts(const OpenedSnapshot* snapshot, const std::vector<NamedTensor>& held,
                        const std::function<bool(const std::string&)>& is_optional);

 private:
  struct Whole;
  const ParameterCut& cut_of(const std::string& tensor) const;
  std::vector<Whole> wholes_of(const std::vector<NamedTensor>& held, ProcessGroup& group,
                               bool counted_only) const;

  ParameterCuts cuts_;
  Mesh& mesh_;
};

}  // namespace ddp::train
