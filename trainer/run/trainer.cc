#include "trainer/run/trainer.h"

#include <cmath>
#include <utility>

#include <ATen/record_function.h>

#include "trainer/config/keys/config_text.h"
#include "trainer/optim/trained_parameters.h"
#include "trainer/parallel/strategy/ddp.h"
#include "trainer/run/divided_model.h"
#include "trainer/run/offloaded_optimizer.h"
#include "trainer/run/run_end.h"
#include "trainer/run/without_copies.h"
#include "trainer/runtime/seed.h"
#include "trainer/task/evaluator.h"

namespace ddp::train {
namespace {

NamedParameters named(const std::vector<Parameter>& parameters) {
  NamedParameters result;
  for (const auto& p : parameters) result.emplace_back(p.name, p.tensor);
  return result;
}

uint64_t as_seed(const Config& config) { return static_cast<uint64_t>(config.trainer.seed); }

/// The fault `drift`: what a bad memory chip does to one rank.
void drift(const torch::Tensor& parameter) {
  const torch::NoGradGuard no_grad;
  auto first = parameter.view(-1).slice(0, 0, 1);
  first.copy_(torch::nextafter(first, torch::full_like(first, 1e30F)));
}

TrainedParameters build_model(Task& task, const Config& config, torch::Device device,
                              bool draw_weights) {
  task.build_model(device, draw_weights ? std::optional(init_seed(as_seed(config))) : std::nullopt);
  auto trained = trained_parameters(config, task.parameters(), task.whole_shapes());
  if (!trained.parameters.empty()) return trained;
  throw UserError(
      fmt::format("distributed_config.pipeline={}: trainer_config.freeze leaves a stage nothing to "
                  "train; freeze less or use pipeline=1",
                  config.distributed.pipeline));
}

/// ZeRO-2 and 3 with several micro-batches for each rank add them up as one process would.
int averaged_over(const Config& config, const BatchPlan& plan, int ranks) {
  const Strategy strategy = config.distributed.strategy;
  const bool in_order = strategy == Strategy::kZero2 || strategy == Strategy::kZero3;
  return in_order && plan.micro_batches > ranks ? 1 : ranks;
}

/// Forward passes without backward passes while it lives.
class Inference {
 public:
  explicit Inference(GradientSync& sync) : sync_(sync), no_copies_(sync) { sync.begin_inference(); }
  ~Inference() { sync_.end_inference(); }
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

 private:
  GradientSync& sync_;
  WithoutCopies no_copies_;
};

void check_evaluation(const Task& task, const TrainerConfig& config) {
  check_metric_name(task.metric_names(), config.metric_for_best_model);
  if (task.evaluation() != nullptr) return;
  const char* key = config.early_stopping_patience  ? "early_stopping_patience"
                    : config.load_best_model_at_end ? "load_best_model_at_end"
                                                    : nullptr;
  if (key == nullptr) return;
  throw UserError(
      fmt::format("trainer_config.{} needs evaluations, and there is no data to evaluate on; set "
                  "data_config.eval_path, or data_config.train_split below 1",
                  key));
}

}  // namespace

Trainer::Trainer(const Config& config, const DevicePlan& plan, Mesh& mesh, Task& task,
                 const std::optional<SnapshotMeta>& meta, const OpenedSnapshot* snapshot)
    : config_(config),
      plan_(plan),
      mesh_(mesh),
      world_(mesh.world()),
      data_(mesh.data()),
      task_(task),
      config_json_(config_to_json(config)),
      batch_plan_(plan_batches(config.trainer, data_.size(), meta, mesh.divides_model())),
      own_micro_batches_(batch_plan_.of_rank(data_.rank(), data_.size())),
      averaged_over_(averaged_over(config, batch_plan_, data_.size())),
      loss_weights_(task.training().targets(), config.trainer.batch_size, batch_plan_.micro_batches,
                    data_, averaged_over_),
      amp_dtype_(autocast_dtype(config.trainer)),
      optimizer_(make_optimizer(divide(build_model(task, config, plan.device, !meta),
                                       meta ? FirstValues::kKeep : FirstValues::kOfRankZero),
                                config)),
      state_layout_(task.parameter_layouts(), mesh, shards_, plan.device),
      graphs_(config.trainer.cuda_graphs, plan.device,
              why_no_cuda_graphs(config, plan.device, world_.size(), !task.buffers().empty()),
              own_micro_batches_),
      scaler_(amp_dtype_ == torch::kFloat16, plan.device),
      sampler_(task.training().size(), config.trainer.batch_size, batch_plan_.micro_batches,
               as_seed(config)),
      schedule_(config.optimizer, steps_of_run(config.trainer, sampler_.steps_per_epoch())),
      guard_(config.trainer.spike_factor),
      average_(optimizer_->masters(), config.trainer.ema_decay),
      early_stopping_(config.trainer.early_stopping_patience,
                      config.trainer.early_stopping_min_delta) {
  check_evaluation(task, config.trainer);
  if (mesh.divides_model()) {
    model_norm_ = std::make_unique<ModelNorm>(optimizer_->parameters(), state_layout_.layouts(),
                                              shards_ == nullptr ? mesh.model() : world_);
    if (shards_ != nullptr) {
      partial_gradients_ =
          std::make_unique<PartialGradients>(task.partial_gradients(), *shards_, mesh);
    }
  }
  if (task.stage_model() != nullptr) make_pipeline();
  if (meta) load(*meta, snapshot);
  task.join(data_, batch_plan_.micro_batches);
  // A Reducer's nodes of the backward pass belong to a stream that cannot be recorded.
  if (graphs_.enabled()) sync_ = std::make_unique<DistributedDataParallel>();
  if (!sync_) {
    sync_ = make_gradient_sync(named(optimizer_->parameters()), data_, config.distributed,
                               meta ? FirstValues::kKeep : FirstValues::kOfRankZero, [this] {
                                 const Autocast autocast(plan_.device.type(), amp_dtype_);
                                 return task_.smallest_loss();
                               });
  }
  share_table();
  optimizer_->refresh_masters();
}

TrainedParameters Trainer::divide(TrainedParameters trained, FirstValues values) {
  std::unique_ptr<ShardedDataParallel> shards;
  if (config_.distributed.strategy == Strategy::kZero3 && data_.size() > 1) {
    shards = divide_model(task_, trained, data_, averaged_over_, values);
  } else if (auto zero = make_shards(trained, data_, config_.distributed, averaged_over_, values)) {
    if (task_.stage_model() == nullptr) overlap_gather_with_forward(task_.model(), *zero);
    shards = std::move(zero);
  }
  if (!shards) return trained;
  auto pieces = shards_of(trained, *shards, task_.parameter_layouts());
  shards_ = shards.get();
  sync_ = std::move(shards);
  return pieces;
}

void Trainer::restore(const SnapshotMeta& meta, const OpenedSnapshot* snapshot) {
  load(meta, snapshot);
  share_table();
  weight_copies_.forget();
  graphs_.forget();
  optimizer_->refresh_masters();
}

StepOutput Trainer::train_step(DataLoader& loader, RunMonitor& monitor,
                               const std::function<void()>& before_update,
                               const std::function<bool()>& gives_up) {
  StepOutput output;
  graphs_.begin_step();
  gradients_are_ready_ = false;
  if (!graphs_.enabled()) zero_gradients();  // if they are, a graph may make them
  {
    std::optional<WeightCopies::Step> shared_copies;
    if (!sync_->divides_weights())
      shared_copies.emplace(weight_copies_, sync_->weights_are_on_their_way());
    auto losses =
        pipeline_ ? run_pipeline(loader, monitor) : run_micro_batches(loader, monitor, gives_up);
    output.abandoned = !losses;
    if (output.abandoned) return output;
    output.losses = std::move(*losses);
  }
  monitor.enter(Phase::kOptimizer);
  before_update();
  monitor.meet(Phase::kOptimizer, "update");
  update(output, monitor.faults());
  ++step_;
  if (monitor.faults().plans(FaultKind::kDrift, step_)) {
    drift(weights().back().tensor);
    optimizer_->refresh_masters();
  }
  cursor_ = sampler_.next(cursor_);
  return output;
}

// The order is that of the mathematics: the step's gradient, whether it is a good one, the update.
void Trainer::update(StepOutput& output, const FaultPlan& faults) {
  RECORD_USER_SCOPE("optimizer");
  const auto found_inf = finish_gradients(output, faults);
  judge(output, found_inf);
  apply(output);
  scaler_.update(found_inf);
}

std::optional<torch::Tensor> Trainer::finish_gradients(StepOutput& output,
                                                       const FaultPlan& faults) {
  if (partial_gradients_)
    partial_gradients_->sum();
  else
    task_.complete_gradients();
  const auto gradients = optimizer_->gradients();
  loss_weights_.correct(gradients, output.losses);
  auto found_inf = scaler_.unscale(gradients);
  if (found_inf) combine_found_inf(*found_inf);
  output.grad_norm = model_norm_ ? (*model_norm_)(gradients) : sync_->global_norm(gradients);
  if (faults.plans(FaultKind::kNanHere, step_ + 1)) output.grad_norm.fill_(std::nan(""));
  return found_inf;
}

void Trainer::combine_found_inf(torch::Tensor& found_inf) {
  sync_->combine_found_inf(found_inf);
  if (!mesh_.divides_model()) return;
  mesh_.model().all_reduce_sum(found_inf);
  found_inf.clamp_max_(1.0);
}

void Trainer::judge(StepOutput& output, const std::optional<torch::Tensor>& found_inf) {
  output.not_finite =
      found_inf ? *found_inf : (~torch::isfinite(output.grad_norm)).to(torch::kFloat32);
  if (!guard_.watches_spikes()) return;
  const double loss = global_mean_loss(output);
  const auto numbers =
      to_host(torch::stack({output.grad_norm.reshape({}), output.not_finite.reshape({})}));
  // Equal on all ranks, so all of them decide the same, even if the device of one computes wrongly.
  world_.all_reduce_max(numbers);
  const auto norm = numbers[0].item<float>();
  const bool overflow = scaler_.enabled() && numbers[1].item<float>() != 0.0F;
  output.spike = !overflow && guard_.judge(loss, norm) == StepVerdict::kSpike;
}

void Trainer::apply(StepOutput& output) {
  output.learning_rate = schedule_.learning_rate(step_);
  task_.end_step(data_, output.spike ? torch::ones_like(output.not_finite) : output.not_finite);
  if (output.spike) return;
  update_weights(output);
  average_.update(optimizer_->found_inf_of_masters(output.not_finite));
  sync_->begin_sharing_weights();
  share_table();
}

void Trainer::update_weights(const StepOutput& output) {
  const auto copy_of = [this](const torch::Tensor& weight) { return weight_copies_.of(weight); };
  auto clip = clip_coefficient(output.grad_norm, config_.trainer.grad_norm_clip);
  if (clip.defined() && config_.logging.histogram_every_steps) {  // of clipped gradients
    const torch::NoGradGuard no_grad;
    at::_foreach_mul_(optimizer_->gradients(), std::exchange(clip, {}));
  }
  if (!optimizer_->step(output.learning_rate, output.not_finite, clip, copy_of)) return;
  std::vector<torch::Tensor> weights;
  for (const Parameter& parameter : optimizer_->parameters()) weights.push_back(parameter.tensor);
  weight_copies_.written(weights);
}

void Trainer::leave_out_step(DataLoader& loader) {
  for (int64_t micro = 0; micro < own_micro_batches_; ++micro) loader.next();
  ++step_;
  cursor_ = sampler_.next(cursor_);
}

std::optional<std::string> Trainer::sample(const std::function<bool()>& go_on) {
  swap_averages();
  std::optional<std::string> text;
  const bool by_all = divides_weights();
  if (by_all || world_.is_main()) {
    const Inference inference(*sync_);
    text = task_.sample(sample_seed(as_seed(config_), step_), by_all ? agreed(go_on) : go_on);
  }
  swap_averages();
  return world_.is_main() ? text : std::nullopt;
}

bool Trainer::divides_weights() const {
  return mesh_.divides_model() || (shards_ != nullptr && shards_->divides_weights());
}

// Every pass of the model is a collective.
std::function<bool()> Trainer::agreed(const std::function<bool()>& go_on) {
  return [this, &go_on] { return world_.all_reduce_max_async(go_on() ? 0 : 1).wait() == 0; };
}

void Trainer::swap_averages() {
  if (!average_.enabled()) return;
  sync_->settle_weights();
  optimizer_->write_masters([this] { average_.swap(); });
  sync_->share_weights();
  share_table();
}

std::optional<Evaluation> Trainer::evaluate_on(const SampleSource& samples,
                                               std::optional<int64_t> most_batches,
                                               const std::function<bool()>& go_on,
                                               const std::function<void()>& before_wait) {
  swap_averages();
  std::optional<Evaluation> evaluation;
  {
    const Inference inference(*sync_);
    const auto idle = sync_->divides_weights() ? IdleRanks::kJoin : IdleRanks::kWait;
    evaluation = evaluate(task_, samples, config_.trainer.batch_size, data_, plan_.device,
                          amp_dtype_, go_on, before_wait, most_batches, idle, &world_);
  }
  swap_averages();
  return evaluation;
}

std::optional<Evaluation> Trainer::test_now(const std::function<bool()>& go_on,
                                            const std::function<void()>& before_wait) {
  const SampleSource* samples = task_.test();
  if (samples == nullptr) return std::nullopt;
  return evaluate_on(*samples, std::nullopt, go_on, before_wait);
}

std::optional<Evaluation> Trainer::evaluate_now(const std::function<bool()>& go_on,
                                                const std::function<void()>& before_wait) {
  const SampleSource* samples = task_.evaluation();
  evaluation_due_ = samples != nullptr;
  if (!evaluation_due_) return std::nullopt;
  auto evaluation = evaluate_on(*samples, config_.trainer.eval_iters, go_on, before_wait);
  for (const auto& [name, set] : task_.evaluation_sets()) {
    if (!evaluation) break;
    add_set(evaluation, name, evaluate_on(*set, config_.trainer.eval_iters, go_on, before_wait));
  }
  if (!evaluation) return std::nullopt;
  evaluation_due_ = false;
  // The same step is evaluated again when a run that has ended is started once more.
  const bool again = last_eval_ && last_eval_->step == step_;
  const double score = score_of(evaluation->metrics, config_.trainer.metric_for_best_model);
  last_eval_ = EvalRecord{step_, evaluation->metrics.front().second, score,
                          score_basis(*samples, config_.trainer)};
  if (is_better(*last_eval_, best_eval_)) best_eval_ = last_eval_;
  if (!again) early_stopping_.evaluated(score);
  return evaluation;
}

int64_t Trainer::updated_elements() const {
  int64_t elements = 0;
  for (const auto& p : optimizer_->parameters()) elements += p.tensor.numel();
  return elements;
}

std::unique_ptr<DataLoader> Trainer::make_loader() const {
  const DataLoader::Options options{
      config_.trainer.batch_size,          own_micro_batches_,    data_.rank(), data_.size(),
      config_.trainer.data_loader_workers, plan_.device.is_cuda()};
  return std::make_unique<DataLoader>(task_.training(), sampler_, cursor_, options);
}

}  // namespace ddp::train
