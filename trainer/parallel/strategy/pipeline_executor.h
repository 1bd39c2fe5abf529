// One rank's part of a pipelined optimizer step: computes, sends and receives in the order of a
// schedule.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/strategy/pipeline_schedule.h"

namespace ddp::train {

/// What the stages of a rank compute.
class StageCompute {
 public:
  virtual ~StageCompute() = default;

  /// Shape of what stages hand on of a micro-batch, the same in all of them.
  virtual std::vector<int64_t> activation_shape(int64_t micro_batch) = 0;
  /// With a graph. `input`: of the stage before, not defined for the first one. Returns a float
  /// scalar for the last stage: what the backward pass starts from.
  virtual torch::Tensor forward(int stage, int64_t micro_batch, const torch::Tensor& input) = 0;
  /// The backward pass from `start`, a scalar. With `sync` the gradients are those of the step when
  /// it returns: they are averaged over the copies of the model.
  virtual void backward(const torch::Tensor& start, bool sync) = 0;
  /// Once in a step in which no backward pass had `sync`: the gradients, which are complete, are
  /// averaged.
  virtual void sync() = 0;
};

/// The table of a tied head: the first stage trains it, the last one has a copy. Both undefined if
/// there is none; else one of them, on the rank that has it.
struct SharedTable {
  torch::Tensor trained;  ///< On the first stage's rank.
  torch::Tensor copy;     ///< On the last stage's.
};

class PipelineExecutor {
 public:
  /// `group`: the ranks of the pipeline in the order of their stages; outlives this. `options`: of
  /// what stages hand on.
  PipelineExecutor(PipelineSchedule schedule, const PipelineShape& shape, ProcessGroup& group,
                   const torch::TensorOptions& options, SharedTable table);

  /// All forward and backward passes of one step. Gradients add up in `.grad`; the copy's are added
  /// to those of the table before the last backward pass of the first stage. A collective.
  void run(StageCompute& compute);
  /// Gives the last stage the table as the first one has it. A collective of all ranks.
  void share_table();

  const PipelineShape& shape() const { return shape_; }

 private:
  using Place = std::pair<int, int64_t>;        // stage, micro-batch
  struct Gradient : torch::CustomClassHolder {  // of a stage's output, when it has arrived
    torch::Tensor value;
  };
  struct Pass {
    torch::Tensor input;
    Message input_message;
    torch::Tensor start;   // what the backward pass starts from
    torch::Tensor output;  // until it is sent
    c10::intrusive_ptr<Gradient> gradient;
    Message gradient_message;
  };

  void perform(StageCompute& compute, const PipelineAction& action);
  void forward(StageCompute& compute, const PipelineAction& action);
  void backward(StageCompute& compute, const PipelineAction& action);
  void receive(torch::Tensor& into, Message& message, StageCompute& compute, int64_t micro_batch,
               int from_stage);
  void send(const torch::Tensor& tensor, int to_stage);
  void add_gradient_of_copy();

  PipelineShape shape_;
  ProcessGroup& group_;
  torch::TensorOptions options_;
  SharedTable table_;
  PipelineOrder order_;
  PipelineAction last_backward_;
  std::map<Place, Pass> passes_;
  std::deque<Message> sent_;
  Message sent_table_;
};

}  // namespace ddp::train
