// Stage 3 of ZeRO, as in FSDP (Y. Zhao et al., "PyTorch FSDP: Experiences on scaling fully sharded
// data parallel", 2023): a rank keeps only its shards of the weights, too.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "trainer/parallel/strategy/sharded_data_parallel.h"

namespace ddp::train {

/// Parameters have memory only while in use: views into the table that an all-gather has
/// filled, without a copy. A unit's parameters are gathered together before its forward pass
/// and freed after it, and again for its backward pass; the next unit in either direction is
/// prefetched meanwhile. All other parameters belong to the root, used before the first unit
/// and after the last one: they stay gathered throughout a forward pass until the units'
/// backward passes begin, and again after these. With the reduction that makes three
/// collectives per unit and micro-batch; a partly frozen unit has its frozen parameters in
/// separate tables.
///
/// Gradients go into a unit's table as soon as they are computed. A unit whose gradients are
/// complete is reduced while the backward pass continues, and added to earlier ones: bitwise
/// identical to one process with all micro-batches, whatever the number of ranks.
///
/// All ranks must run the same passes in the same order. An exception in a pass frees the
/// weights.
class FullyShardedDataParallel : public ShardedDataParallel {
 public:
  /// `units`: indices into `parameters`, in the order of the forward pass; the other parameters are
  /// the root's. Parameters that need no gradient are frozen. `averaged_over` as in
  /// ZeroDataParallel. For two and more ranks; checks that they have the same parameters (RunError
  /// otherwise), and copies rank 0's values to all or keeps theirs.
  FullyShardedDataParallel(std::vector<Parameter> parameters,
                           const std::vector<std::vector<std::size_t>>& units, ProcessGroup& group,
                           int averaged_over, FirstValues values);

  /// Around the forward pass of a unit; see UnitHooks in trainer/model/blocks/model_unit.h. Within
  /// backward() it is computed once more, and its weights stay for its backward pass.
  void before_forward(std::size_t unit);
  void after_forward(std::size_t unit, const torch::Tensor& x, const torch::Tensor& y);

  bool divides_weights() const override { return true; }
  void begin_micro_batch(bool last) override;
  /// Throws RunError if a parameter gets no gradient, or more than one.
  void backward(const torch::Tensor& loss) override;
  bool reduces_every_micro_batch() const override { return true; }
  void skip_micro_batch(const std::function<torch::Tensor()>& forward) override;
  void begin_inference() override { collect_root(); }
  void end_inference() override;

 private:
  /// The trained or the frozen parameters of a unit.
  struct Part {
    struct Place {
      std::size_t parameter;
      int64_t at;  ///< In the table.
    };
    std::size_t bucket;
    std::vector<Place> places;
    torch::Tensor own_row;  ///< The weights' row.
    torch::Tensor table;    ///< Defined while they are being gathered or in use.
    RowWork work;
  };
  struct Unit {
    std::vector<Part> parts;  ///< Trained parameters first, where there are any.
    bool there = false;
    std::size_t trained = 0;            ///< Parameters.
    std::size_t missing = 0;            ///< Gradients of this backward pass.
    std::vector<Part::Place> unpacked;  ///< Gradients that have arrived.
    torch::Tensor gradients;            ///< Table, from the first gradients of some size on.
  };
  struct Reduction {
    torch::Tensor table;
    RowWork work;
    void wait();
  };

  void divide(Unit& unit, const std::vector<std::size_t>& members, bool trained);
  void watch_gradients(Unit& unit);
  Unit& root() { return units_.back(); }
  bool is_on_its_way(const Unit& unit) const { return unit.parts.front().table.defined(); }

  void begin_collecting(Unit& unit);
  void collect(Unit& unit);
  void collect_root();
  void before_backward(std::size_t unit);
  void after_backward(std::size_t unit);
  void collect_next(Unit& unit);
  void free(Unit& unit);
  void free_all();
  /// Cleans up after an exception: other ranks may be at a different point.
  void abandon();
  void free_other_units(const Unit& used);

  void gradient_ready(Unit& unit, const Part::Place& place);
  void pack(Unit& unit);
  void reduce(Unit& unit);
  void check_complete() const;

  const int averaged_over_;
  std::vector<Unit> units_;  // the last one is the root
  std::vector<Reduction> reductions_;
  std::size_t next_reduction_ = 0;
  std::vector<bool> arrived_;  // gradients of this backward pass, by parameter
  bool in_backward_ = false;
  bool leaves_out_ = false;
};

}  // namespace ddp::train
