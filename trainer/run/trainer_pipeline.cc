// A training step of a model that is cut into stages.
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <cmath>

#include "trainer/metrics/text.h"
#include "trainer/optim/amp.h"
#include "trainer/run/trainer.h"
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

/// On all ranks of the run. Throws UserError.
void check_micro_batches(const DistributedConfig& config, const PipelineShape& shape,
                         ProcessGroup& world) {
  const bool fits = suits(config.pipeline_schedule, shape);
  if (world.all_reduce_max_async(fits ? 0 : 1).wait() == 0) return;
  throw UserError(fmt::format(
      "distributed_config.pipeline_schedule=interleaved needs a multiple of pipeline={} "
      "micro-batches for each copy of the model, and there are {}; set "
      "trainer_config.grad_accumulation_steps={} or pipeline_schedule=1f1b",
      shape.ranks, shape.micro_batches, (shape.micro_batches / shape.ranks + 1) * shape.ranks));
}

}  // namespace

/// What this rank computes of one step.
class Trainer::PipelinedStep : public StageCompute {
 public:
  PipelinedStep(Trainer& trainer, RunMonitor& monitor, std::vector<Batch> batches)
      : trainer_(trainer), monitor_(monitor), batches_(std::move(batches)) {
    for (const Batch& batch : batches_) losses_.push_back({{}, batch.target_count});
  }

  /// After the step.
  std::vector<MicroBatchLoss> losses() { return std::move(losses_); }

  std::vector<int64_t> activation_shape(int64_t micro_batch) override {
    return trainer_.task_.stage_model()->activation_shape(batch(micro_batch));
  }

  torch::Tensor forward(int stage, int64_t micro_batch, const torch::Tensor& input) override {
    monitor_.enter(Phase::kForward);
    RECORD_USER_SCOPE("forward");
    trainer_.seed_dropout(micro_batch);
    const int ranks = trainer_.mesh_.shape().pipeline;
    torch::Tensor output;
    {
      const Autocast autocast(trainer_.plan_.device.type(), trainer_.amp_dtype_);
      output =
          trainer_.task_.stage_model()->forward_stage(stage / ranks, input, batch(micro_batch));
    }
    if (stage + 1 < ranks * trainer_.config_.distributed.pipeline_chunks) return output;
    return start_of_backward(output, micro_batch);
  }

  void backward(const torch::Tensor& start, bool sync) override {
    monitor_.enter(Phase::kBackward, sync ? trainer_.sync_->collective_name() : "");
    RECORD_USER_SCOPE("backward");
    trainer_.sync_->begin_micro_batch(sync);
    trainer_.sync_->backward(start);
  }

  void sync() override {
    std::vector<torch::Tensor> parameters;
    for (const auto& p : trainer_.task_.parameters()) {
      if (p.tensor.requires_grad()) parameters.push_back(p.tensor);
    }
    backward(NoGradients::apply(at::TensorList(parameters)), /*sync=*/true);
  }

 private:
  const Batch& batch(int64_t micro_batch) const {
    return batches_[static_cast<std::size_t>(micro_batch)];
  }

  torch::Tensor start_of_backward(torch::Tensor mean, int64_t micro_batch) {
    if (monitor_.faults().plans(FaultKind::kNan, trainer_.step_ + 1)) mean = mean * std::nan("");
    MicroBatchLoss& loss = losses_[static_cast<std::size_t>(micro_batch)];
    loss.mean = mean.detach();
    return trainer_.scaler_.scale(trainer_.loss_weights_.for_backward({mean, loss.targets}));
  }

  Trainer& trainer_;
  RunMonitor& monitor_;
  std::vector<Batch> batches_;
  std::vector<MicroBatchLoss> losses_;
};

void Trainer::make_pipeline() {
  ProcessGroup& group = mesh_.pipeline();
  const DistributedConfig& config = config_.distributed;
  StageModel& model = *task_.stage_model();
  const PipelineShape shape{group.size(), static_cast<int>(config.pipeline_chunks),
                            own_micro_batches_};
  check_micro_batches(config, shape, world_);
  SharedTable table;
  (mesh_.is_first_stage() ? table.trained : table.copy) = model.shared_table();
  const auto& trained = table.trained;
  const bool trains = trained.defined() && trained.requires_grad();
  const bool shared = group.gather_doubles(trains ? 1.0 : 0.0).front() == 1.0;
  if (table.copy.defined()) table.copy.set_requires_grad(shared);
  stage_links_ = std::make_unique<GroupLinks>(group);
  model.set_links(stage_links_.get());
  pipeline_ = std::make_unique<PipelineExecutor>(config.pipeline_schedule, shape, group,
                                                 model.activation_options(), std::move(table));
}

std::string Trainer::pipeline_text() const {
  if (!pipeline_) return "";
  const PipelineShape& shape = pipeline_->shape();
  return fmt::format(
      "{} stages{}, {}, {}; with equal stages a rank waits for {:.0f} % of a step", shape.stages(),
      shape.chunks > 1 ? fmt::format(" on {} ranks", shape.ranks) : "",
      name_of(config_.distributed.pipeline_schedule), counted(shape.micro_batches, "micro-batch"),
      100.0 * pipeline_idle_share(shape));
}

std::vector<MicroBatchLoss> Trainer::run_pipeline(DataLoader& loader, RunMonitor& monitor) {
  monitor.enter(Phase::kData);
  std::vector<Batch> batches;
  for (int64_t micro = 0; micro < own_micro_batches_; ++micro)
    batches.push_back(loader.next().to(plan_.device));
  PipelinedStep step(*this, monitor, std::move(batches));
  pipeline_->run(step);
  return step.losses();
}

void Trainer::share_table() {
  if (pipeline_) pipeline_->share_table();
}

double Trainer::global_mean_loss(const StepOutput& output) const {
  const double own =
      loss_weights_.step_loss(pipeline_ ? of_last_stage(output.losses) : output.losses);
  // Equal on ranks that share layers, unless one of them has got a NaN: then all have to know.
  for (const double loss : mesh_.tensor().gather_doubles(own)) {
    if (!std::isfinite(loss)) return loss;
  }
  return own;
}

std::vector<MicroBatchLoss> Trainer::of_last_stage(std::vector<MicroBatchLoss> losses) const {
  std::vector<torch::Tensor> means;
  for (const auto& loss : losses) {
    means.push_back(loss.mean.defined() ? loss.mean.reshape({})
                                        : torch::zeros({}, torch::TensorOptions(plan_.device)));
  }
  auto all = torch::stack(means).to(torch::kFloat32);
  stage_links_->share(all);
  for (std::size_t i = 0; i < losses.size(); ++i) losses[i].mean = all[static_cast<int64_t>(i)];
  return losses;
}

}  // namespace ddp::train
