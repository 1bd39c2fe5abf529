// The ranks of a run as a grid: which ranks share a model, and which have copies of it.
#pragma once

#include <exception>
#include <memory>

#include "trainer/config/distributed_config.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/device/device_plan.h"
#include "trainer/parallel/environment/dist_env.h"

namespace ddp::train {

/// Sizes of the grid. World size = data x pipeline x tensor x expert.
struct MeshShape {
  int data = 1;      ///< Replicas of the model.
  int pipeline = 1;  ///< Stages of the model.
  int tensor = 1;    ///< Ranks that share each layer of a stage.
  int expert = 1;    ///< Ranks that share the experts of each layer, and have the rest of it.

  int size() const { return data * model_size(); }
  int model_size() const { return pipeline * tensor * expert; }
};

/// A rank's place in the grid:
/// rank = ((data * shape.pipeline + stage) * shape.tensor + tensor) * shape.expert + expert.
/// Ranks that share layers wait for each other most and are adjacent, on one machine if it has
/// enough of them; copies of the model are furthest apart.
struct MeshPlace {
  int data = 0;
  int stage = 0;
  int tensor = 0;
  int expert = 0;

  static MeshPlace of_rank(int rank, const MeshShape& shape);
  int rank_in(const MeshShape& shape) const;
};

/// The groups of one rank, each of the ranks that differ from it in one coordinate only. Rank 0 of
/// each is the first along that coordinate. A group of one rank has no connection: its calls return
/// at once. Groups of the same ranks are the same object.
class Mesh {
 public:
  /// All ranks have copies of the model.
  explicit Mesh(ProcessGroup& world);
  /// `shape.size()` is the size of `world`, which must outlive this object. All ranks call it with
  /// the same shape and connect their groups in the same order. Throws as ProcessGroup().
  Mesh(ProcessGroup& world, const MeshShape& shape, const DistEnv& env,
       const DistributedConfig& config, const DevicePlan& plan);

  const MeshShape& shape() const { return shape_; }
  const MeshPlace& place() const { return place_; }
  bool is_first_stage() const { return place_.stage == 0; }
  bool is_last_stage() const { return place_.stage + 1 == shape_.pipeline; }
  /// Whether each copy of the model is divided among ranks.
  bool divides_model() const { return shape_.model_size() > 1; }

  ProcessGroup& world() const { return world_; }
  /// The ranks with micro-batches of their own, of all copies of the model: the gradients of what
  /// they all hold are averaged over them.
  ProcessGroup& data() const { return *data_; }
  /// The ranks that hold the same part of the model; data() unless ranks share experts.
  ProcessGroup& copies() const { return *copies_; }
  /// The stages of this rank's copy of the model, at its tensor coordinate.
  ProcessGroup& pipeline() const { return *pipeline_; }
  /// The ranks that share the layers of this rank's stage.
  ProcessGroup& tensor() const { return *tensor_; }
  /// All ranks of this rank's copy of the model.
  ProcessGroup& model() const { return *model_; }

 private:
  ProcessGroup& world_;
  const MeshShape shape_;
  const MeshPlace place_;
  std::shared_ptr<ProcessGroup> data_, pipeline_, tensor_, model_, copies_;
};

/// Guards a mesh against an exception while its GPUs wait for other ranks. Destructors would abort
/// its communicators one after another, each taking its time; only the world's is left to the end
/// of the process.
class AbortOnFailure {
 public:
  explicit AbortOnFailure(ProcessGroup& group) : group_(group) {}
  ~AbortOnFailure() {
    if (std::uncaught_exceptions() > before_) group_.abort();
  }
  AbortOnFailure(const AbortOnFailure&) = delete;
  AbortOnFailure& operator=(const AbortOnFailure&) = delete;

 private:
  ProcessGroup& group_;
  const int before_ = std::uncaught_exceptions();
};

}  // namespace ddp::train
