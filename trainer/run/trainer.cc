#include "trainer/run/trainer.h"

#include <cmath>
#include <utility>

#include <ATen/record_function.h>

#include "trainer/config/config.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/run/offloaded_optimizer.h"
#include "trainer/run/run_end.h"
#include "trainer/run/strategy/inference.h"
#include "trainer/runtime/seed.h"

namespace ddp::train {
namespace {

uint64_t as_seed(const Config& config) { return static_cast<uint64_t>(config.trainer.seed); }

/// The fault `drift`: what a bad memory chip does to one rank.
void drift(const torch::Tensor& parameter) {
  const torch::NoGradGuard no_grad;
  auto first = parameter.view(-1).slice(0, 0, 1);
  first.copy_(torch::nextafter(first, torch::full_like(first, 1e30F)));
}

FirstValues first_values(const std::optional<SnapshotMeta>& meta) {
  return meta ? FirstValues::kKeep : FirstValues::kOfRankZero;
}

void check_evaluation(const Task& task, const TrainerConfig& config) {
  const auto own = task.metric_names();
  auto names = own;
  for (const NamedSource& set : task.evaluation_sets())
    for (const std::string& name : own) names.push_back(name_in_set(set.name, name));
  check_metric_name(names, config.metric_for_best_model);
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
      task_(task),
      config_json_(config_to_json(config)),
      batch_plan_(plan_batches(config.trainer, mesh.data().size(), meta,
                               mesh.data().size() < mesh.world().size())),
      strategy_(make_parallel_strategy({config, plan.device, mesh, task, batch_plan_},
                                       first_values(meta))),
      optimizer_(make_optimizer(strategy_->updated(), config)),
      scaler_(autocast_dtype(config.trainer) == torch::kFloat16, plan.device),
      sampler_(task.training().size(), config.trainer.batch_size, batch_plan_.micro_batches,
               as_seed(config)),
      guard_(config.trainer.spike_factor),
      average_(optimizer_->masters(), config.trainer.ema_decay),
      early_stopping_(config.trainer.early_stopping_patience,
                      config.trainer.early_stopping_min_delta) {
  check_evaluation(task, config.trainer);
  if (meta) load(*meta, snapshot);
  schedule_.emplace(config.optimizer, steps_in_all());
  task.join(mesh.world(), batch_plan_.micro_batches);
  strategy_->begin(first_values(meta));
  optimizer_->refresh_masters();
}

int64_t Trainer::steps_in_all() const {
  return steps_of_run(config_.trainer, sampler_, step_, cursor_);
}

void Trainer::restore(const SnapshotMeta& meta, const OpenedSnapshot* snapshot) {
  load(meta, snapshot);
  strategy_->weights_loaded();
  optimizer_->refresh_masters();
}

StepOutput Trainer::train_step(DataLoader& loader, RunMonitor& monitor,
                               const std::function<void()>& before_update,
                               const std::function<bool()>& gives_up) {
  StepOutput output;
  auto losses = strategy_->run_passes({loader, monitor, *optimizer_, scaler_, step_, gives_up});
  output.abandoned = !losses;
  if (output.abandoned) return output;
  output.losses = std::move(*losses);
  monitor.enter(Phase::kOptimizer);
  before_update();
  monitor.meet(Phase::kOptimizer, "update");
  update(output, monitor.faults());
  ++step_;
  if (monitor.faults().plans(FaultKind::kDrift, step_)) {
    drift(strategy_->weights().back().tensor);
    optimizer_->refresh_masters();
  }
  cursor_ = sampler_.next(cursor_);
  return output;
}

// The order is that of the mathematics: the step's gradient, whether it is a good one, the update.
void Trainer::update(StepOutput& output, const FaultPlan& faults) {
  RECORD_USER_SCOPE("optimizer");
  const StepGradient gradient = strategy_->finish_gradients(*optimizer_, scaler_, output.losses);
  output.grad_norm = gradient.norm;
  if (faults.plans(FaultKind::kNanHere, step_ + 1)) output.grad_norm.fill_(std::nan(""));
  judge(output, gradient.found_inf);
  apply(output);
  scaler_.update(gradient.found_inf);
}

void Trainer::judge(StepOutput& output, const std::optional<torch::Tensor>& found_inf) {
  output.not_finite =
      found_inf ? *found_inf : (~torch::isfinite(output.grad_norm)).to(torch::kFloat32);
  if (!guard_.watches_spikes()) return;
  const double loss = global_mean_loss(output);
  const auto numbers =
      to_host(torch::stack({output.grad_norm.reshape({}), output.not_finite.reshape({})}));
  // Equal on all ranks, so all of them decide the same, even if the device of one computes wrongly.
  mesh_.world().all_reduce_max(numbers);
  const auto norm = numbers[0].item<float>();
  const bool overflow = scaler_.enabled() && numbers[1].item<float>() != 0.0F;
  output.spike = !overflow && guard_.judge(loss, norm) == StepVerdict::kSpike;
}

void Trainer::apply(StepOutput& output) {
  output.learning_rate = schedule_->learning_rate(step_);
  task_.end_step(mesh_.data(),
                 output.spike ? torch::ones_like(output.not_finite) : output.not_finite);
  if (output.spike) return;
  update_weights(output);
  average_.update(optimizer_->found_inf_of_masters(output.not_finite));
  strategy_->begin_sharing_weights();
}

void Trainer::update_weights(const StepOutput& output) {
  auto clip = clip_coefficient(output.grad_norm, config_.trainer.grad_norm_clip);
  if (clip.defined() && config_.logging.histogram_every_steps) {  // of clipped gradients
    const torch::NoGradGuard no_grad;
    at::_foreach_mul_(optimizer_->gradients(), std::exchange(clip, {}));
  }
  strategy_->update(*optimizer_, output.learning_rate, output.not_finite, clip);
}

void Trainer::leave_out_step(DataLoader& loader) {
  for (int64_t micro = 0; micro < strategy_->own_micro_batches(); ++micro) loader.next();
  ++step_;
  cursor_ = sampler_.next(cursor_);
}

std::optional<std::string> Trainer::sample(const std::function<bool()>& go_on) {
  swap_averages();
  std::optional<std::string> text;
  ProcessGroup& world = mesh_.world();
  const bool by_all = strategy_->divides_weights();
  const auto all_go_on = [&] { return world.all_reduce_max_async(go_on() ? 0 : 1).wait() == 0; };
  if (by_all || world.is_main()) {
    const Inference inference(strategy_->sync());
    const auto seed = sample_seed(as_seed(config_), step_);
    text = by_all ? task_.sample(seed, all_go_on) : task_.sample(seed, go_on);
  }
  swap_averages();
  return world.is_main() ? text : std::nullopt;
}

void Trainer::swap_averages() {
  if (!average_.enabled()) return;
  strategy_->sync().settle_weights();
  optimizer_->write_masters([this] { average_.swap(); });
  strategy_->share_weights();
}

std::optional<Evaluation> Trainer::evaluate_on(const SampleSource& samples,
                                               std::optional<int64_t> most_batches,
                                               const std::function<bool()>& go_on,
                                               const std::function<void()>& before_wait) {
  swap_averages();
  std::optional<Evaluation> evaluation;
  {
    GradientSync& sync = strategy_->sync();
    const Inference inference(sync);
    evaluation = evaluate(
        task_, samples, config_.trainer.batch_size, mesh_.data(), plan_.device,
        autocast_dtype(config_.trainer), go_on, before_wait, most_batches,
        sync.divides_weights() || mesh_.shape().expert > 1 ? IdleRanks::kJoin : IdleRanks::kWait,
        &mesh_.world());
  }
  swap_averages();
  return evaluation;
}

void Trainer::prepare_task(const std::function<void()>& alive) {
  const Inference inference(strategy_->sync());
  task_.prepare(mesh_.data(), alive);
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

std::unique_ptr<DataLoader> Trainer::make_loader() const {
  const DataLoader::Options options{
      config_.trainer.batch_size, strategy_->own_micro_batches(),      mesh_.data().rank(),
      mesh_.data().size(),        config_.trainer.data_loader_workers, plan_.device.is_cuda()};
  return std::make_unique<DataLoader>(task_.training(), sampler_, cursor_, options);
}

}  // namespace ddp::train
