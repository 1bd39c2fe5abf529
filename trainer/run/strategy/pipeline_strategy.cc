// A step of a model that is cut into stages.
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <utility>

#include "trainer/config/config.h"
#include "trainer/metrics/text.h"
#include "trainer/parallel/strategy/pipeline_executor.h"
#include "trainer/run/strategy/parallel_strategy.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// Between the ranks of a pipeline, in passes without gradients.
class GroupLinks : public StageLinks {
 public:
  explicit GroupLinks(ProcessGroup& group) : group_(group) {}

  void receive(torch::Tensor& x) override {
    group_.receive(x, (group_.rank() + group_.size() - 1) % group_.size()).wait();
  }
  // One is on its way at a time: the next stage may be late.
  void send(const torch::Tensor& x) override {
    sent_.wait();
    sent_ = group_.send(x, (group_.rank() + 1) % group_.size());
  }
  void share(torch::Tensor& x) override {
    if (group_.rank() + 1 < group_.size()) x.zero_();
    group_.all_reduce_sum(x);
  }

 private:
  ProcessGroup& group_;
  Message sent_;
};

/// Calls the hooks of the gradients of `parameters`, to which it adds nothing.
struct NoGradients : torch::autograd::Function<NoGradients> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               at::TensorList parameters) {
    context->saved_data["count"] = static_cast<int64_t>(parameters.size());
    return torch::zeros({}, parameters.front().options().dtype(torch::kFloat32));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list&) {
    return torch::autograd::variable_list(
        static_cast<std::size_t>(context->saved_data["count"].toInt()));
  }
};

/// The last stage's copy gets a gradient if the first stage trains the table.
SharedTable shared_table(const ParallelStrategy::Setup& setup) {
  SharedTable table;
  const auto own = setup.task.stage_model()->shared_table();
  (setup.mesh.is_first_stage() ? table.trained : table.copy) = own;
  const auto& trained = table.trained;
  const bool trains = trained.defined() && trained.requires_grad();
  const bool shared = setup.mesh.pipeline().gather_doubles(trains ? 1.0 : 0.0).front() == 1.0;
  if (table.copy.defined()) table.copy.set_requires_grad(shared);
  return table;
}

class PipelineStrategy : public ParallelStrategy {
 public:
  PipelineStrategy(const Setup& setup, DividedModel model, const PipelineShape& shape,
                   SharedTable table)
      : ParallelStrategy(setup, std::move(model)),
        stages_(*setup.task.stage_model()),
        executor_(setup.config.distributed.pipeline_schedule, shape, setup.mesh.pipeline(),
                  stages_.activation_options(), std::move(table)),
        links_(setup.mesh.pipeline()) {
    stages_.set_links(&links_);
  }

  std::string pipeline_text() const override {
    const PipelineShape& shape = executor_.shape();
    return fmt::format(
        "{} stages{}, {}, {}; with equal stages a rank waits for {:.0f} % of a step",
        shape.stages(), shape.chunks > 1 ? fmt::format(" on {} ranks", shape.ranks) : "",
        name_of(setup_.config.distributed.pipeline_schedule),
        counted(shape.micro_batches, "micro-batch"), 100.0 * pipeline_idle_share(shape));
  }

 private:
  class Passes;
  std::optional<std::vector<MicroBatchLoss>> run_micro_batches(const StepContext& step) override;
  void share_table() override { executor_.share_table(); }
  std::vector<MicroBatchLoss> with_means(std::vector<MicroBatchLoss> losses) override {
    std::vector<torch::Tensor> means;
    for (const auto& loss : losses) {
      means.push_back(loss.mean.defined() ? loss.mean.reshape({})
                                          : torch::zeros({}, torch::TensorOptions(setup_.device)));
    }
    auto all = torch::stack(means).to(torch::kFloat32);
    links_.share(all);
    for (std::size_t i = 0; i < losses.size(); ++i) losses[i].mean = all[static_cast<int64_t>(i)];
    return losses;
  }

  StageModel& stages_;
  PipelineExecutor executor_;
  GroupLinks links_;
};

/// What this rank computes of one step.
class PipelineStrategy::Passes : public StageCompute {
 public:
  Passes(PipelineStrategy& strategy, const StepContext& step) : strategy_(strategy), step_(step) {
    step.monitor.enter(Phase::kData);
    for (int64_t micro = 0; micro < strategy.setup_.own_micro_batches(); ++micro) {
      batches_.push_back(step.loader.next().to(strategy.setup_.device));
      losses_.push_back({{}, batches_.back().target_count});
    }
  }

  /// After the step.
  std::vector<MicroBatchLoss> losses() { return std::move(losses_); }

  std::vector<int64_t> activation_shape(int64_t micro_batch) override {
    return strategy_.stages_.activation_shape(batch(micro_batch));
  }

  torch::Tensor forward(int stage, int64_t micro_batch, const torch::Tensor& input) override {
    step_.monitor.enter(Phase::kForward);
    RECORD_USER_SCOPE("forward");
    strategy_.seed_dropout(step_, micro_batch);
    const PipelineShape& shape = strategy_.executor_.shape();
    torch::Tensor output;
    {
      const Autocast autocast(strategy_.setup_.device.type(), strategy_.amp_dtype_);
      output = strategy_.stages_.forward_stage(stage / shape.ranks, input, batch(micro_batch));
    }
    return shape.is_last(stage) ? start_of_backward(output, micro_batch) : output;
  }

  void backward(const torch::Tensor& start, bool sync) override {
    step_.monitor.enter(Phase::kBackward, sync ? strategy_.sync().collective_name() : "");
    RECORD_USER_SCOPE("backward");
    strategy_.sync().begin_micro_batch(sync);
    strategy_.sync().backward(start);
  }

  void sync() override {
    std::vector<torch::Tensor> parameters;
    for (const auto& p : strategy_.setup_.task.parameters()) {
      if (p.tensor.requires_grad()) parameters.push_back(p.tensor);
    }
    backward(NoGradients::apply(at::TensorList(parameters)), /*sync=*/true);
  }

 private:
  const Batch& batch(int64_t micro_batch) const {
    return batches_[static_cast<std::size_t>(micro_batch)];
  }

  torch::Tensor start_of_backward(torch::Tensor mean, int64_t micro_batch) {
    if (step_.monitor.faults().plans(FaultKind::kNan, step_.steps_made + 1))
      mean = mean * std::nan("");
    MicroBatchLoss& loss = losses_[static_cast<std::size_t>(micro_batch)];
    loss.mean = mean.detach();
    return step_.scaler.scale(strategy_.loss_weights_.for_backward({mean, loss.targets}));
  }

  PipelineStrategy& strategy_;
  const StepContext& step_;
  std::vector<Batch> batches_;
  std::vector<MicroBatchLoss> losses_;
};

std::optional<std::vector<MicroBatchLoss>> PipelineStrategy::run_micro_batches(
    const StepContext& step) {
  Passes passes(*this, step);
  executor_.run(passes);
  return passes.losses();
}

}  // namespace

std::unique_ptr<ParallelStrategy> make_pipeline_strategy(const ParallelStrategy::Setup& setup,
                                                         DividedModel model) {
  const DistributedConfig& config = setup.config.distributed;
  const PipelineShape shape{setup.mesh.pipeline().size(), static_cast<int>(config.pipeline_chunks),
                            setup.own_micro_batches()};
  const bool fits = suits(config.pipeline_schedule, shape);
  if (setup.mesh.world().all_reduce_max_async(fits ? 0 : 1).wait() != 0) {  // all ranks throw
    throw UserError(fmt::format(
        "distributed_config.pipeline_schedule=interleaved needs a multiple of pipeline={} "
        "micro-batches for each copy of the model, and there are {}; set "
        "trainer_config.grad_accumulation_steps={} or pipeline_schedule=1f1b",
        shape.ranks, shape.micro_batches, (shape.micro_batches / shape.ranks + 1) * shape.ranks));
  }
  auto table = shared_table(setup);
  return std::make_unique<PipelineStrategy>(setup, std::move(model), shape, std::move(table));
}

}  // namespace ddp::train
