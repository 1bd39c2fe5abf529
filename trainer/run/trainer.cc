#include "trainer/run/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>

#include "trainer/config/keys/config_text.h"
#include "trainer/optim/trained_parameters.h"
#include "trainer/run/divided_model.h"
#include "trainer/run/run_end.h"
#include "trainer/runtime/seed.h"
#include "trainer/snapshot/resume_check.h"
#include "trainer/task/evaluator.h"

namespace ddp::train {
namespace {

NamedParameters named(const std::vector<Parameter>& parameters) {
  NamedParameters result;
  for (const auto& p : parameters) result.emplace_back(p.name, p.tensor);
  return result;
}

at::Generator default_generator(torch::Device device) {
  return at::globalContext().defaultGenerator(device);
}

/// The state of the device's default generator if it were seeded with `seed`; the generator itself
/// stays as it is.
torch::Tensor seeded_state(torch::Device device, uint64_t seed) {
  auto generator = default_generator(device);
  const std::lock_guard lock(generator.mutex());
  auto copy = generator.clone();
  copy.set_current_seed(seed);
  return copy.get_state();
}

void seed_generator(torch::Device device, uint64_t seed) {
  auto generator = default_generator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
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
  return trained_parameters(config, task.parameters());
}

/// ZeRO-2 and 3 with several micro-batches for each rank add them up as one process would.
int averaged_over(const Config& config, const BatchPlan& plan, int ranks) {
  const Strategy strategy = config.distributed.strategy;
  const bool in_order = strategy == Strategy::kZero2 || strategy == Strategy::kZero3;
  return in_order && plan.micro_batches > ranks ? 1 : ranks;
}

/// The parameter that a tensor of a snapshot belongs to: "optimizer.P.exp_avg", "ema.P".
std::string parameter_of(const std::string& tensor) {
  const std::string name = tensor.substr(tensor.find('.') + 1);
  return tensor.starts_with("optimizer.") ? name.substr(0, name.rfind('.')) : name;
}

/// The place of a tensor's section in the order of Trainer::state().
std::size_t section_of(std::string_view tensor) {
  constexpr std::array<std::string_view, 4> kSections = {"model.", "optimizer.", "buffer.", "ema."};
  const auto found =
      std::find_if(kSections.begin(), kSections.end(),
                   [&](std::string_view section) { return tensor.starts_with(section); });
  return static_cast<std::size_t>(found - kSections.begin());
}

/// Keeps autocast from caching 16-bit copies of divided weights, which would outlive them.
class WithoutCopies {
 public:
  explicit WithoutCopies(const GradientSync& sync)
      : cached_(at::autocast::is_autocast_cache_enabled()) {
    if (sync.divides_weights()) at::autocast::set_autocast_cache_enabled(false);
  }
  ~WithoutCopies() { at::autocast::set_autocast_cache_enabled(cached_); }
  WithoutCopies(const WithoutCopies&) = delete;
  WithoutCopies& operator=(const WithoutCopies&) = delete;

 private:
  bool cached_;
};

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

Trainer::Trainer(const Config& config, const DevicePlan& plan, ProcessGroup& group, Task& task,
                 const std::optional<SnapshotMeta>& meta, const OpenedSnapshot* snapshot)
    : config_(config),
      plan_(plan),
      group_(group),
      task_(task),
      config_json_(config_to_json(config)),
      batch_plan_(plan_batches(config.trainer, group.size(), meta)),
      own_micro_batches_(batch_plan_.of_rank(group.rank(), group.size())),
      averaged_over_(averaged_over(config, batch_plan_, group.size())),
      loss_weights_(task.training().targets(), config.trainer.batch_size, batch_plan_.micro_batches,
                    group, averaged_over_),
      amp_dtype_(autocast_dtype(config.trainer)),
      optimizer_(make_optimizer(divide(build_model(task, config, plan.device, !meta),
                                       meta ? FirstValues::kLeft : FirstValues::kOfRankZero),
                                config.optimizer)),
      scaler_(amp_dtype_ == torch::kFloat16, plan.device),
      sampler_(task.training().size(), config.trainer.batch_size, batch_plan_.micro_batches,
               as_seed(config)),
      schedule_(config.optimizer, steps_of_run(config.trainer, sampler_.steps_per_epoch())),
      guard_(config.trainer.spike_factor),
      average_(optimizer_->parameters(), config.trainer.ema_decay),
      early_stopping_(config.trainer.early_stopping_patience,
                      config.trainer.early_stopping_min_delta) {
  check_evaluation(task, config.trainer);
  if (meta) load(*meta, snapshot);
  task.join(group, batch_plan_.micro_batches);
  if (!sync_) {
    sync_ = make_gradient_sync(named(optimizer_->parameters()), group_, config.distributed,
                               meta ? FirstValues::kLeft : FirstValues::kOfRankZero, [this] {
                                 const Autocast autocast(plan_.device.type(), amp_dtype_);
                                 return task_.smallest_loss();
                               });
  }
  if (meta) share_state(snapshot);
}

TrainedParameters Trainer::divide(TrainedParameters trained, FirstValues values) {
  std::unique_ptr<ShardedDataParallel> shards;
  if (config_.distributed.strategy == Strategy::kZero3 && group_.size() > 1)
    shards = divide_model(task_, trained, group_, averaged_over_, values);
  else
    shards = make_shards(trained, group_, config_.distributed, averaged_over_, values);
  if (!shards) return trained;
  auto pieces = pieces_of(trained, *shards);
  shards_ = shards.get();
  sharded_state_ = std::make_unique<ShardedState>(*shards, group_);
  sync_ = std::move(shards);
  return pieces;
}

void Trainer::restore(const SnapshotMeta& meta, const OpenedSnapshot* snapshot) {
  load(meta, snapshot);
  share_state(snapshot);
}

std::vector<NamedTensor> Trainer::state() const {
  std::vector<NamedTensor> result = weights();
  for (const auto& [name, tensor, piece] : optimizer_->state())
    result.push_back({"optimizer." + name, tensor, piece});
  for (const auto& each : task_.buffers()) result.push_back({"buffer." + each.name, each.tensor});
  for (const auto& [name, tensor, piece] : average_.state())
    result.push_back({"ema." + name, tensor, piece});
  return result;
}

std::vector<NamedTensor> Trainer::weights() const {
  std::vector<NamedTensor> result;
  if (shards_ == nullptr || !shards_->divides_weights()) {
    for (const auto& p : task_.parameters())
      result.push_back({"model." + p.name, p.tensor.detach()});
    return result;
  }
  const std::size_t in_snapshots = task_.parameters().size();
  for (const OwnShard& own : shards_->own()) {
    if (own.shard.parameter >= in_snapshots) continue;
    const auto& [name, tensor, whole] = shards_->parameters()[own.shard.parameter];
    result.push_back({"model." + name, own.value,
                      Piece{own.shard.parameter, tensor.sizes().vec(), own.shard.begin}});
  }
  return result;
}

std::vector<NamedTensor> Trainer::whole_weights() const {
  const auto own = weights();
  const bool divided = shards_ != nullptr && shards_->divides_weights();
  return divided ? sharded_state_->gather(own) : own;
}

std::vector<NamedTensor> Trainer::state_where(bool divided) const {
  auto tensors = state();
  std::erase_if(tensors, [&](const auto& each) { return each.piece.has_value() != divided; });
  return tensors;
}

void Trainer::load(const SnapshotMeta& meta, const OpenedSnapshot* snapshot) {
  if (snapshot != nullptr) load_tensors(config_from_json(meta.config_json), *snapshot);
  const torch::NoGradGuard no_grad;
  optimizer_->step_count().fill_(meta.optimizer_step);
  scaler_.load_state(meta.grad_scaler);
  guard_.load_state(meta.step_guard);
  step_ = meta.step;
  const bool same_order = same_data_order(meta, config_, task_);
  cursor_ = sampler_.normalized(same_order ? meta.cursor : DataCursor{meta.cursor.epoch, 0});
  last_eval_ = meta.last_eval;
  best_eval_ = meta.best_eval;
  evaluation_due_ = meta.evaluation_due;
  early_stopping_.load_state(meta.early_stopping);
  if (keeps_best_evaluation(meta, config_, task_)) return;
  best_eval_.reset();
  early_stopping_.forget();
}

bool Trainer::may_lack(const Config& before, const std::string& tensor) const {
  if (without_state_.contains(parameter_of(tensor))) return true;
  return tensor.starts_with("ema.")
             ? before.trainer.ema_decay == 0.0
             : momentum_of(before.optimizer) == 0.0 && tensor.ends_with(".momentum_buffer");
}

// Averages start as the weights, and the optimizer's state, of parameters that were frozen or had
// another optimizer, starts at 0; so does momentum that is new.
void Trainer::load_tensors(const Config& before, const OpenedSnapshot& snapshot) {
  without_state_ = parameters_without_state(before, config_, shapes_of(task_.parameters()));
  const auto load = [&](const NamedTensor& each) {
    if (!each.piece)
      snapshot.load_into(each.name, each.tensor);
    else if (each.tensor.numel() > 0)
      snapshot.load_part_into(each.name, each.piece->shape, each.piece->begin, each.tensor);
  };
  std::vector<NamedTensor> of_training;
  for (auto& each : state()) {
    if (each.name.starts_with("optimizer.") || each.name.starts_with("ema."))
      of_training.push_back(each);
    else
      load(each);
  }
  average_.restart();
  for (const auto& each : of_training) {
    if (!may_lack(before, each.name) || snapshot.file->find(each.name) != nullptr) load(each);
  }
}

// A rank that has read a file has it from its own mapping: what counts is what the ranks hold then.
void Trainer::share_state(const OpenedSnapshot* snapshot) {
  if (group_.size() == 1) return;
  const auto readers = group_.gather_doubles(snapshot != nullptr ? 1.0 : 0.0);
  const bool all = std::find(readers.begin(), readers.end(), 0.0) == readers.end();
  if (all && !compare_replicas()) return;
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> tensors;
  for (const auto& each : state_where(/*divided=*/false)) tensors.push_back(each.tensor);
  group_.broadcast(tensors);
  if (shards_ == nullptr) return;
  const Config before =
      snapshot != nullptr ? config_from_json(snapshot->meta.config_json) : config_;
  const auto deal_out = [&](const std::vector<NamedTensor>& pieces) {
    sharded_state_->deal_out(snapshot, pieces,
                             [&](const std::string& name) { return may_lack(before, name); });
  };
  if (shards_->divides_weights()) deal_out(weights());
  average_.restart();
  auto of_training = state_where(/*divided=*/true);
  std::erase_if(of_training, [](const auto& each) { return each.name.starts_with("model."); });
  deal_out(of_training);
}

MicroBatchLoss Trainer::run_micro_batch(DataLoader& loader, RunMonitor& monitor, int64_t micro,
                                        bool last) {
  monitor.enter(Phase::kData);
  const Batch batch = loader.next().to(plan_.device);
  monitor.enter(Phase::kForward);
  seed_generator(plan_.device,
                 dropout_seed(as_seed(config_), step_, micro * group_.size() + group_.rank()));
  sync_->begin_micro_batch(last);
  MicroBatchLoss loss{{}, batch.target_count};
  {
    RECORD_USER_SCOPE("forward");
    const Autocast autocast(plan_.device.type(), amp_dtype_);
    const WithoutCopies no_copies(*sync_);
    try {
      loss.mean = task_.loss(batch);
    } catch (...) {
      sync_->end_inference();
      throw;
    }
  }
  if (monitor.faults().plans(FaultKind::kNan, step_ + 1)) loss.mean = loss.mean * std::nan("");
  const auto scaled = scaler_.scale(loss_weights_.for_backward(loss));
  const bool reduces = last || sync_->reduces_every_micro_batch();
  monitor.enter(Phase::kBackward, reduces ? sync_->collective_name() : "");
  RECORD_USER_SCOPE("backward");
  sync_->backward(scaled);
  return {loss.mean.detach(), loss.targets};
}

StepOutput Trainer::train_step(DataLoader& loader, RunMonitor& monitor,
                               const std::function<void()>& before_update) {
  StepOutput output;
  optimizer_->zero_grad();
  for (int64_t micro = 0; micro < own_micro_batches_; ++micro) {
    output.losses.push_back(
        run_micro_batch(loader, monitor, micro, /*last=*/micro + 1 == own_micro_batches_));
  }
  const int64_t most = batch_plan_.of_rank(0, group_.size());
  if (sync_->reduces_every_micro_batch() && own_micro_batches_ < most) {
    monitor.enter(Phase::kBackward, sync_->collective_name());
    sync_->leave_out_micro_batch([this] { return task_.smallest_loss(); });
  }
  monitor.enter(Phase::kOptimizer);
  before_update();
  monitor.meet(Phase::kOptimizer, "update");
  update(output);
  ++step_;
  if (monitor.faults().plans(FaultKind::kDrift, step_)) drift(weights().back().tensor);
  cursor_ = sampler_.next(cursor_);
  return output;
}

// The order is that of the mathematics: the step's gradient, whether it is a good one, the update.
void Trainer::update(StepOutput& output) {
  RECORD_USER_SCOPE("optimizer");
  const auto found_inf = finish_gradients(output);
  judge(output, found_inf);
  apply(output);
  scaler_.update(found_inf);
}

std::optional<torch::Tensor> Trainer::finish_gradients(StepOutput& output) {
  const auto gradients = optimizer_->gradients();
  loss_weights_.correct(gradients, output.losses);
  auto found_inf = scaler_.unscale(gradients);
  if (found_inf) sync_->combine_found_inf(*found_inf);
  output.grad_norm = sync_->global_norm(gradients);
  clip_gradients(gradients, output.grad_norm, config_.trainer.grad_norm_clip);
  return found_inf;
}

void Trainer::judge(StepOutput& output, const std::optional<torch::Tensor>& found_inf) {
  output.not_finite =
      found_inf ? *found_inf : (~torch::isfinite(output.grad_norm)).to(torch::kFloat32);
  if (!guard_.watches_spikes()) return;
  // Equal on all ranks, so all of them decide the same.
  const double loss = global_mean_loss(output);
  const auto numbers =
      to_host(torch::stack({output.grad_norm.reshape({}), output.not_finite.reshape({})}));
  const auto norm = numbers[0].item<float>();
  const bool overflow = scaler_.enabled() && numbers[1].item<float>() != 0.0F;
  output.spike = !overflow && guard_.judge(loss, norm) == StepVerdict::kSpike;
}

void Trainer::apply(StepOutput& output) {
  output.learning_rate = schedule_.learning_rate(step_);
  task_.end_step(group_, output.spike ? torch::ones_like(output.not_finite) : output.not_finite);
  if (output.spike) return;
  optimizer_->step(output.learning_rate, output.not_finite);
  average_.update(output.not_finite);
  sync_->share_weights();
}

void Trainer::leave_out_step(DataLoader& loader) {
  for (int64_t micro = 0; micro < own_micro_batches_; ++micro) loader.next();
  ++step_;
  cursor_ = sampler_.next(cursor_);
}

std::optional<std::string> Trainer::sample(const std::function<bool()>& go_on) {
  swap_averages();
  std::optional<std::string> text;
  const bool by_all = shards_ != nullptr && shards_->divides_weights();
  if (by_all || group_.is_main()) {
    const Inference inference(*sync_);
    text = task_.sample(sample_seed(as_seed(config_), step_), by_all ? agreed(go_on) : go_on);
  }
  swap_averages();
  return group_.is_main() ? text : std::nullopt;
}

// Every pass of the model is a collective.
std::function<bool()> Trainer::agreed(const std::function<bool()>& go_on) {
  return [this, &go_on] { return group_.all_reduce_max_async(go_on() ? 0 : 1).wait() == 0; };
}

void Trainer::swap_averages() {
  average_.swap();
  if (average_.enabled()) sync_->share_weights();
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
    evaluation = evaluate(task_, samples, config_.trainer.batch_size, group_, plan_.device,
                          amp_dtype_, go_on, before_wait, most_batches, idle);
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

// In the order of state().
std::vector<NamedTensor> Trainer::whole_state() const {
  if (shards_ == nullptr) return state();
  auto tensors = state_where(/*divided=*/false);
  auto gathered = sharded_state_->gather(state_where(/*divided=*/true));
  std::move(gathered.begin(), gathered.end(), std::back_inserter(tensors));
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return section_of(a.name) < section_of(b.name);
  });
  return tensors;
}

SnapshotMeta Trainer::capture_meta() const {
  // One copy, and the only time that the host waits for the device.
  const auto counters = to_host(
      torch::cat({optimizer_->step_count().to(torch::kFloat64).view({1}), scaler_.packed_state()}));
  SnapshotMeta meta;
  meta.step = step_;
  meta.cursor = cursor_;
  meta.optimizer_step = counters[0].item<double>();
  meta.grad_scaler = GradScaler::unpack(counters.slice(0, 1));
  meta.task = task_.metadata();
  meta.task[kTaskKey] = task_name(config_.task);
  meta.config_json = config_json_;
  meta.data_sha256 = task_.training().fingerprint();
  meta.micro_batches_per_step = batch_plan_.micro_batches;
  meta.world_size = group_.size();
  meta.step_guard = guard_.state();
  meta.last_eval = last_eval_;
  meta.best_eval = best_eval_;
  meta.evaluation_due = evaluation_due_;
  meta.early_stopping = early_stopping_.state();
  return meta;
}

// As the next step's first micro-batch will find it: the same for any number of ranks.
NamedTensor Trainer::generator_state() const {
  return {plan_.device.is_cuda() ? "generator.cuda" : "generator.cpu",
          seeded_state(plan_.device, dropout_seed(as_seed(config_), step_, 0))};
}

TrainingState Trainer::capture() const {
  TrainingState state{capture_meta(), {}, {}};
  for (auto& each : whole_state()) state.tensors.emplace_back(each.name, each.tensor);
  const auto generator = generator_state();
  state.tensors.emplace_back(generator.name, generator.tensor);
  state.ready = record_ready(plan_.device);
  return state;
}

TrainingState Trainer::capture_shard() const {
  TrainingState state{capture_meta(), {}, {}, ShardToSave{}};
  ShardToSave& shard = *state.shard;
  shard.id = {"", 0, step_, group_.rank(), group_.size()};
  auto whole = state_where(/*divided=*/false);
  whole.push_back(generator_state());
  shard.tensors = logical_tensors(whole);
  shard.pieces = own_share(whole, group_.rank(), group_.size());
  if (shards_ != nullptr) {
    auto own = sharded_state_->own_pieces(state_where(/*divided=*/true), shard.tensors);
    std::move(own.begin(), own.end(), std::back_inserter(shard.pieces));
    std::stable_sort(shard.tensors.begin(), shard.tensors.end(), [](const auto& a, const auto& b) {
      return section_of(a.name) < section_of(b.name);
    });
  }
  state.tensors = parts_of(shard.pieces);
  state.ready = record_ready(plan_.device);
  return state;
}

std::optional<ReplicaDifference> Trainer::compare_replicas(
    const std::function<void()>& before_wait) {
  return find_difference(state_where(/*divided=*/false), group_, before_wait);
}

int64_t Trainer::updated_elements() const {
  int64_t elements = 0;
  for (const auto& p : optimizer_->parameters()) elements += p.tensor.numel();
  return elements;
}

std::vector<NamedTensor> Trainer::gradients() const {
  std::vector<NamedTensor> gradients;
  for (const auto& p : optimizer_->parameters())
    gradients.push_back({p.name, p.tensor.grad(), p.piece});
  return shards_ == nullptr ? gradients : sharded_state_->gather(gradients);
}

std::unique_ptr<DataLoader> Trainer::make_loader() const {
  const DataLoader::Options options{
      config_.trainer.batch_size,          own_micro_batches_,    group_.rank(), group_.size(),
      config_.trainer.data_loader_workers, plan_.device.is_cuda()};
  return std::make_unique<DataLoader>(task_.training(), sampler_, cursor_, options);
}

}  // namespace ddp::train
