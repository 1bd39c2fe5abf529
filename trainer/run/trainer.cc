#include "trainer/run/trainer.h"

#include "trainer/interop/pretrained_weights.h"

#include <cmath>

#include "trainer/config/keys/config_text.h"
#include "trainer/runtime/seed.h"
#include "trainer/snapshot/resume_check.h"

namespace ddp::train {
namespace {

std::vector<OptimizedParameter> optimized_parameters(const GPT& model) {
  std::vector<OptimizedParameter> result;
  for (auto& p : model->model_parameters()) result.push_back({p.name, p.tensor, {}, {}, p.decay});
  return result;
}

NamedParameters named_parameters(const GPT& model) {
  NamedParameters result;
  for (auto& p : model->model_parameters()) result.emplace_back(p.name, p.tensor);
  return result;
}

at::Generator default_generator(torch::Device device) {
  return at::globalContext().defaultGenerator(device);
}

void seed_generator(torch::Device device, uint64_t seed) {
  auto generator = default_generator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

uint64_t as_seed(const Config& config) { return static_cast<uint64_t>(config.trainer.seed); }

GPT build_model(const Config& config, const CharDataset& dataset, torch::Device device,
                bool resumed) {
  GPT model(config.gpt, dataset.vocabulary().size(), config.data.block_size,
            init_seed(as_seed(config)));
  if (!resumed && !config.gpt.init_from.empty()) {
    std::vector<NamedTensor> weights;
    for (const auto& p : model->model_parameters()) weights.push_back({p.name, p.tensor});
    load_pretrained(config.gpt.init_from, weights);
  }
  model->to(device);
  model->train();
  return model;
}

}  // namespace

Trainer::Trainer(const Config& config, const DevicePlan& plan, ProcessGroup& group,
                 const CharDataset& dataset, const std::optional<SnapshotMeta>& meta,
                 const OpenedSnapshot* snapshot)
    : config_(config),
      plan_(plan),
      group_(group),
      dataset_(dataset),
      config_json_(config_to_json(config)),
      batch_plan_(plan_batches(config.trainer, group.size(), meta)),
      own_micro_batches_(batch_plan_.of_rank(group.rank(), group.size())),
      model_(build_model(config, dataset, plan.device, meta.has_value())),
      amp_dtype_(autocast_dtype(config.trainer)),
      optimizer_(optimized_parameters(model_), config.optimizer),
      scaler_(amp_dtype_ == torch::kFloat16, plan.device),
      sampler_(dataset.training().size(), config.trainer.batch_size, batch_plan_.micro_batches,
               as_seed(config)),
      guard_(config.trainer.spike_factor) {
  if (meta) load(*meta, snapshot);
  ddp_ = std::make_unique<DistributedDataParallel>(named_parameters(model_), group_,
                                                   config.distributed);
  if (meta) broadcast_state();
  warm_up_ddp();
}

void Trainer::restore(const SnapshotMeta& meta, const OpenedSnapshot* snapshot) {
  load(meta, snapshot);
  broadcast_state();
}

void Trainer::load(const SnapshotMeta& meta, const OpenedSnapshot* snapshot) {
  if (snapshot != nullptr) {
    for (auto& p : optimizer_.parameters()) {
      snapshot->load_into("model." + p.name, p.parameter);
      snapshot->load_into("optimizer." + p.name + ".exp_avg", p.exp_avg);
      snapshot->load_into("optimizer." + p.name + ".exp_avg_sq", p.exp_avg_sq);
    }
  }
  const torch::NoGradGuard no_grad;
  optimizer_.step_count().fill_(meta.optimizer_step);
  scaler_.load_state(meta.grad_scaler);
  guard_.load_state(meta.step_guard);
  step_ = meta.step;
  const bool same_order = same_data_order(meta, config_, dataset_);
  cursor_ = sampler_.normalized(same_order ? meta.cursor : DataCursor{meta.cursor.epoch, 0});
  last_eval_ = meta.last_eval;
  best_eval_ = meta.best_eval;
  evaluation_due_ = meta.evaluation_due;
}

void Trainer::broadcast_state() {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> tensors;
  for (auto& p : optimizer_.parameters()) {
    tensors.push_back(p.parameter);
    tensors.push_back(p.exp_avg);
    tensors.push_back(p.exp_avg_sq);
  }
  group_.broadcast(tensors);
}

void Trainer::warm_up_ddp() {
  ddp_->warm_up([this] {
    const auto tokens =
        torch::zeros({1, 1}, torch::TensorOptions(torch::kInt64).device(plan_.device));
    torch::Tensor loss;
    {
      const Autocast autocast(plan_.device.type(), amp_dtype_);
      loss = model_->loss(tokens, tokens);
    }
    ddp_->prepare_for_backward(loss);
    loss.backward();
  });
}

torch::Tensor Trainer::run_micro_batch(DataLoader& loader, RunMonitor& monitor, int64_t micro,
                                       bool last) {
  monitor.enter(Phase::kData);
  const Batch batch = loader.next();
  const auto inputs = batch.inputs.to(plan_.device, /*non_blocking=*/true);
  const auto targets = batch.targets.to(plan_.device, /*non_blocking=*/true);
  monitor.enter(Phase::kForward);
  seed_generator(plan_.device,
                 dropout_seed(as_seed(config_), step_, micro * group_.size() + group_.rank()));
  ddp_->prepare_for_forward(/*sync=*/last);
  torch::Tensor loss;
  {
    const Autocast autocast(plan_.device.type(), amp_dtype_);
    loss = model_->loss(inputs, targets);
  }
  if (monitor.faults().plans(FaultKind::kNan, step_ + 1)) loss = loss * std::nan("");
  // The Reducer divides by the number of ranks: their shares of the step need not be equal.
  const double share = static_cast<double>(batch_plan_.micro_batches) / group_.size();
  const auto scaled = scaler_.scale(loss / share);
  ddp_->prepare_for_backward(scaled);
  monitor.enter(Phase::kBackward, last ? "gradients_all_reduce" : "");
  scaled.backward();
  return loss.detach();
}

StepOutput Trainer::train_step(DataLoader& loader, RunMonitor& monitor,
                               const std::function<void()>& before_update) {
  StepOutput output;
  optimizer_.zero_grad();
  for (int64_t micro = 0; micro < own_micro_batches_; ++micro) {
    output.losses.push_back(
        run_micro_batch(loader, monitor, micro, /*last=*/micro + 1 == own_micro_batches_));
  }
  monitor.enter(Phase::kOptimizer);
  before_update();
  update(output);
  ++step_;
  cursor_ = sampler_.next(cursor_);
  return output;
}

void Trainer::update(StepOutput& output) {
  const auto gradients = optimizer_.gradients();
  const auto found_inf = scaler_.unscale(gradients);
  output.grad_norm = clip_grad_norm(gradients, config_.trainer.grad_norm_clip);
  output.not_finite =
      found_inf ? *found_inf : (~torch::isfinite(output.grad_norm)).to(torch::kFloat32);
  if (guard_.watches_spikes()) {
    // Equal on all ranks, so all of them decide the same.
    const double loss = global_mean_loss(output);
    const bool overflow = scaler_.enabled() && output.not_finite.item<float>() != 0.0F;
    output.spike =
        !overflow && guard_.judge(loss, output.grad_norm.item<float>()) == StepVerdict::kSpike;
  }
  if (!output.spike) optimizer_.step(output.not_finite);
  scaler_.update(found_inf);
}

void Trainer::leave_out_step(DataLoader& loader) {
  for (int64_t micro = 0; micro < own_micro_batches_; ++micro) loader.next();
  ++step_;
  cursor_ = sampler_.next(cursor_);
}

std::optional<EvalResult> Trainer::evaluate_now(const std::function<bool()>& go_on,
                                                const std::function<void()>& before_wait) {
  const auto windows = dataset_.evaluation();
  evaluation_due_ = windows.size() != 0;
  if (!evaluation_due_) return std::nullopt;
  const auto result = evaluate(model_, windows, config_.trainer.batch_size, group_, plan_.device,
                               amp_dtype_, go_on, before_wait);
  if (!result) return std::nullopt;
  evaluation_due_ = false;
  last_eval_ = EvalRecord{step_, result->loss};
  if (!best_eval_ || result->loss < best_eval_->loss) best_eval_ = last_eval_;
  return result;
}

double Trainer::global_mean_loss(const StepOutput& output) {
  auto sum = torch::zeros({1}, torch::kFloat64);
  for (const auto& loss : output.losses) sum += loss.to(torch::kCPU, torch::kFloat64);
  group_.all_reduce_sum(sum);
  return sum.item<double>() / static_cast<double>(batch_plan_.micro_batches);
}

TrainingState Trainer::capture() {
  TrainingState state;
  SnapshotMeta& meta = state.meta;
  meta.step = step_;
  meta.cursor = cursor_;
  meta.optimizer_step = optimizer_.step_count().item<double>();
  meta.grad_scaler = scaler_.state();
  meta.vocabulary = dataset_.vocabulary().characters();
  meta.config_json = config_json_;
  meta.data_sha256 = dataset_.sha256();
  meta.micro_batches_per_step = batch_plan_.micro_batches;
  meta.world_size = group_.size();
  meta.step_guard = guard_.state();
  meta.last_eval = last_eval_;
  meta.best_eval = best_eval_;
  meta.evaluation_due = evaluation_due_;
  for (const auto& p : optimizer_.parameters())
    state.tensors.emplace_back("model." + p.name, p.parameter.detach());
  for (const auto& p : optimizer_.parameters()) {
    state.tensors.emplace_back("optimizer." + p.name + ".exp_avg", p.exp_avg);
    state.tensors.emplace_back("optimizer." + p.name + ".exp_avg_sq", p.exp_avg_sq);
  }
  // The generators as the next step's first micro-batch will find them: the same for any number of
  // ranks.
  seed_generator(plan_.device, dropout_seed(as_seed(config_), step_, 0));
  const std::string device = plan_.device.is_cuda() ? "cuda" : "cpu";
  state.tensors.emplace_back("generator." + device, default_generator(plan_.device).get_state());
  state.ready = record_ready(plan_.device);
  return state;
}

std::unique_ptr<DataLoader> Trainer::make_loader() const {
  const DataLoader::Options options{
      config_.trainer.batch_size,          own_micro_batches_,    group_.rank(), group_.size(),
      config_.trainer.data_loader_workers, plan_.device.is_cuda()};
  return std::make_unique<DataLoader>(dataset_.training(), sampler_, cursor_, options);
}

}  // namespace ddp::train
