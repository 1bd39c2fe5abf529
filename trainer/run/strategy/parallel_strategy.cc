#include "trainer/run/strategy/parallel_strategy.h"

#include <fmt/format.h>

#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/config/param_groups.h"
#include "trainer/model/lora.h"
#include "trainer/optim/trained_parameters.h"
#include "trainer/parallel/strategy/ddp.h"
#include "trainer/run/strategy/inference.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/seed.h"

namespace ddp::train {
namespace {

/// Ranks that share experts go through the same passes.
void check_frozen_experts(const Config& config, const std::vector<ParameterShape>& parameters) {
  std::map<std::string, bool> frozen;  // by the name without the expert's number
  for (const ParameterGroup& group : resolve_param_groups(config, parameters)) {
    for (const std::size_t i : group.members) {
      const std::string& name = parameters[i].name;
      if (!is_of_expert(name)) continue;
      const auto number = name.find(".experts.") + std::string_view(".experts.").size();
      const std::string all = name.substr(0, number) + "*" + name.substr(name.find('.', number));
      if (frozen.emplace(all, group.options.frozen).first->second == group.options.frozen) continue;
      throw UserError(fmt::format(
          "trainer_config.freeze: selects some of {}, and ranks that share experts "
          "(distributed_config.expert={}) train all of them or none; freeze all or none",
          all, config.distributed.expert));
    }
  }
}

TrainedParameters build_model(const ParallelStrategy::Setup& setup, FirstValues values) {
  const auto seed = static_cast<uint64_t>(setup.config.trainer.seed);
  setup.task.build_model(
      setup.device, values == FirstValues::kKeep ? std::nullopt : std::optional(init_seed(seed)));
  if (setup.mesh.shape().expert > 1) check_frozen_experts(setup.config, setup.task.whole_shapes());
  auto trained =
      trained_parameters(setup.config, setup.task.parameters(), setup.task.whole_shapes());
  // On all ranks, as rank 0 reports it and the stage may be another one's.
  int64_t empty = trained.parameters.empty() ? 1 : 0;
  if (setup.mesh.shape().pipeline > 1)
    empty = setup.mesh.world().all_reduce_max_async(empty).wait();
  if (empty == 0) return trained;
  throw UserError(
      fmt::format("distributed_config.pipeline={}: a stage has nothing to train; {} or use "
                  "pipeline=1",
                  setup.config.distributed.pipeline,
                  setup.config.lora.enabled() ? "choose layers of each stage in lora.targets"
                                              : "freeze less (trainer_config.freeze)"));
}

/// ZeRO-2 and 3 with several micro-batches for each rank add them up as one process would.
int averaged_over(const ParallelStrategy::Setup& setup) {
  const Strategy strategy = setup.config.distributed.strategy;
  const bool in_order = strategy == Strategy::kZero2 || strategy == Strategy::kZero3;
  const int ranks = setup.mesh.data().size();
  return in_order && setup.batches.micro_batches > ranks ? 1 : ranks;
}

/// The first element of each partial gradient among all of them, by parameter.
struct Places {
  std::map<std::size_t, int64_t> begin;
  int64_t elements = 0;
};

Places places_of(const std::vector<std::string>& partial, const ShardedDataParallel& shards) {
  Places places;
  const auto& parameters = shards.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor, whole] = parameters[i];
    if (!tensor.requires_grad() || std::find(partial.begin(), partial.end(), name) == partial.end())
      continue;
    places.begin.emplace(i, places.elements);
    places.elements += tensor.numel();
  }
  return places;
}

// The shards of ranks that share layers need not match, as their parts of a vocabulary may differ
// in size: each copy of the model assembles its gradients before they are summed.
void sum_shards(const Places& places, const ShardedDataParallel& shards, const Mesh& mesh) {
  const torch::NoGradGuard no_grad;
  const auto options = shards.own().front().value.options().dtype(torch::kFloat32);
  const auto all = torch::zeros({places.elements}, options.requires_grad(false));
  const auto for_each_own = [&](const auto& visit) {
    for (const OwnShard& own : shards.own()) {
      const auto begin = places.begin.find(own.shard.parameter);
      if (begin == places.begin.end()) continue;
      const auto place = all.narrow(0, begin->second + own.shard.begin, own.shard.size());
      visit(own.gradient, place.view_as(own.gradient));
    }
  };
  for_each_own([](const torch::Tensor& own, const torch::Tensor& place) { place.copy_(own); });
  mesh.data().all_reduce_sum(all);  // one rank's value and zeros
  mesh.tensor().all_reduce_sum(all);
  for_each_own([](const torch::Tensor& own, const torch::Tensor& place) { own.copy_(place); });
}

/// Returns what sums Task::partial_gradients() over the ranks that share layers, after the backward
/// passes of a step: Task::complete_gradients(), or its equal, bit for bit, for gradients of which
/// each rank has `shards` (null: whole ones). All arguments outlive it. A collective of the stage's
/// ranks; no host sync.
std::function<void()> sum_of_partial_gradients(Task& task, const ShardedDataParallel* shards,
                                               const Mesh& mesh) {
  if (shards == nullptr) return [&task] { task.complete_gradients(); };
  return [places = places_of(task.partial_gradients(), *shards), shards, &mesh] {
    if (places.elements > 0) sum_shards(places, *shards, mesh);
  };
}

}  // namespace

std::unique_ptr<ParallelStrategy> make_parallel_strategy(const ParallelStrategy::Setup& setup,
                                                         FirstValues values) {
  auto model = divide_model(setup.task, build_model(setup, values), setup.mesh.data(),
                            setup.config.distributed, averaged_over(setup), values);
  if (setup.task.stage_model() != nullptr) return make_pipeline_strategy(setup, std::move(model));
  return std::make_unique<ParallelStrategy>(setup, std::move(model));
}

ParallelStrategy::ParallelStrategy(const Setup& setup, DividedModel model)
    : setup_(setup),
      amp_dtype_(autocast_dtype(setup.config.trainer)),
      loss_weights_(setup.task.training().targets(), setup.config.trainer.batch_size,
                    setup.batches.micro_batches, setup.mesh.data(), averaged_over(setup)),
      graphs_(setup.config.trainer.cuda_graphs, setup.device,
              why_no_cuda_graphs(setup.config, setup.device, setup.mesh.world().size(),
                                 !setup.task.buffers().empty()),
              setup.own_micro_batches()),
      model_(std::move(model)),
      state_(setup.task.parameter_layouts(), setup.mesh, model_.shards, setup.device),
      updating_ranks_(model_.shards == nullptr ? setup.mesh.model() : setup.mesh.world()),
      norm_(model_.updated.parameters, state_.layouts(), updating_ranks_),
      sum_partial_gradients_(sum_of_partial_gradients(setup.task, model_.shards, setup.mesh)),
      may_make_gradients_(setup.device.is_cuda() && setup.own_micro_batches() == 1 &&
                          model_.shards == nullptr && setup.mesh.pipeline().size() == 1) {}

void ParallelStrategy::begin(FirstValues values) {
  // A Reducer's nodes of the backward pass belong to a stream that cannot be recorded.
  if (model_.shards == nullptr && !graphs_.enabled()) {
    NamedParameters parameters, of_experts;
    for (const auto& p : updated().parameters)
      (is_shared_expert(p.name) ? of_experts : parameters).emplace_back(p.name, p.tensor);
    auto ddp = std::make_unique<DistributedDataParallel>(std::move(parameters), setup_.mesh.data(),
                                                         setup_.config.distributed, values);
    ddp->add(std::move(of_experts), setup_.mesh.copies(), setup_.config.distributed, values);
    ddp->warm_up([this] {
      const Autocast autocast(setup_.device.type(), amp_dtype_);
      return setup_.task.smallest_loss();
    });
    model_.sync = std::move(ddp);
  }
  weights_loaded();
}

void ParallelStrategy::weights_loaded() {
  share_table();
  weight_copies_.forget();
  graphs_.forget();
}

int64_t ParallelStrategy::updated_elements() const {
  int64_t elements = 0;
  for (const auto& p : updated().parameters) elements += p.tensor.numel();
  return elements;
}

std::optional<std::vector<MicroBatchLoss>> ParallelStrategy::run_passes(const StepContext& step) {
  graphs_.begin_step();
  gradients_are_ready_ = false;
  if (!graphs_.enabled()) zero_gradients(step.optimizer);  // if they are, a graph may make them
  std::optional<WeightCopies::Step> shared_copies;
  if (!sync().divides_weights())
    shared_copies.emplace(weight_copies_, sync().weights_are_on_their_way());
  return run_micro_batches(step);
}

void ParallelStrategy::zero_gradients(Optimizer& optimizer) {
  if (!std::exchange(gradients_are_ready_, true)) optimizer.zero_grad(makes_gradients());
}

std::optional<std::vector<MicroBatchLoss>> ParallelStrategy::run_micro_batches(
    const StepContext& step) {
  std::vector<MicroBatchLoss> losses;
  const int64_t own_micro_batches = setup_.own_micro_batches();
  const int ranks = setup_.mesh.data().size();
  const int64_t of_every_rank = setup_.batches.of_rank(ranks - 1, ranks);
  for (int64_t micro = 0; micro < own_micro_batches; ++micro) {
    if (step.gives_up && micro > 0 && micro < of_every_rank && step.gives_up()) return std::nullopt;
    losses.push_back(run_micro_batch(step, micro));
  }
  const int64_t most = setup_.batches.of_rank(0, ranks);
  if (sync().reduces_every_micro_batch() && own_micro_batches < most) {
    step.monitor.enter(Phase::kBackward, sync().collective_name());
    sync().skip_micro_batch([this] { return setup_.task.smallest_loss(); });
  }
  return losses;
}

MicroBatchLoss ParallelStrategy::run_micro_batch(const StepContext& step, int64_t micro) {
  RunMonitor& monitor = step.monitor;
  monitor.enter(Phase::kData);
  Batch batch = step.loader.next();
  const bool ruined = monitor.faults().plans(FaultKind::kNan, step.steps_made + 1);
  if (!ruined && graphs_.takes(batch)) return run_graph(step, batch, micro);
  zero_gradients(step.optimizer);
  batch = batch.to(setup_.device);
  monitor.enter(Phase::kForward);
  seed_dropout(step, micro);
  const bool last = micro + 1 == setup_.own_micro_batches();
  sync().begin_micro_batch(last);
  MicroBatchLoss loss{mean_loss(batch), batch.target_count};
  if (ruined) loss.mean = loss.mean * std::nan("");
  const auto scaled = step.scaler.scale(loss_weights_.for_backward(loss));
  const bool reduces = last || sync().reduces_every_micro_batch();
  monitor.enter(Phase::kBackward, reduces ? sync().collective_name() : "");
  RECORD_USER_SCOPE("backward");
  sync().backward(scaled);
  return {loss.mean.detach(), loss.targets};
}

torch::Tensor ParallelStrategy::mean_loss(const Batch& batch) {
  RECORD_USER_SCOPE("forward");
  const Autocast autocast(setup_.device.type(), amp_dtype_);
  const WithoutCopies no_copies(sync());
  try {
    return setup_.task.loss(batch);
  } catch (...) {
    sync().end_inference();
    throw;
  }
}

// The gradients of one rank are those of all: nothing to communicate.
MicroBatchLoss ParallelStrategy::run_graph(const StepContext& step, const Batch& batch,
                                           int64_t micro) {
  step.monitor.enter(Phase::kForward);
  step.monitor.enter(Phase::kBackward);
  const auto passes = [&](const Batch& inputs) {
    const MicroBatchLoss loss{mean_loss(inputs), inputs.target_count};
    RECORD_USER_SCOPE("backward");
    step.scaler.scale(loss_weights_.for_backward(loss)).backward();
    return loss.mean.detach();
  };
  if (!graphs_.makes_gradients()) zero_gradients(step.optimizer);
  std::vector<torch::Tensor> parameters;
  for (const Parameter& parameter : step.optimizer.parameters())
    parameters.push_back(parameter.tensor);
  return {graphs_.run(batch, dropout_seed_of(step, micro), parameters, passes), batch.target_count};
}

uint64_t ParallelStrategy::dropout_seed_of(const StepContext& step, int64_t micro_batch) const {
  const ProcessGroup& data = setup_.mesh.data();
  return dropout_seed(static_cast<uint64_t>(setup_.config.trainer.seed), step.steps_made,
                      micro_batch * data.size() + data.rank());
}

void ParallelStrategy::seed_dropout(const StepContext& step, int64_t micro_batch) const {
  auto generator = at::globalContext().defaultGenerator(setup_.device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(dropout_seed_of(step, micro_batch));
}

bool ParallelStrategy::is_shared_expert(const std::string& parameter) const {
  return setup_.mesh.shape().expert > 1 && is_of_expert(parameter);
}

// A shared expert's gradient is already the sum over the ranks that send it tokens, averaged over
// the copies of the expert alone.
void ParallelStrategy::average_experts(Optimizer& optimizer) const {
  if (setup_.mesh.shape().expert == 1) return;
  std::vector<torch::Tensor> of_experts;
  for (const Parameter& p : optimizer.parameters())
    if (is_of_expert(p.name)) of_experts.push_back(p.tensor.grad());
  const torch::NoGradGuard no_grad;
  if (!of_experts.empty()) at::_foreach_mul_(of_experts, 1.0 / setup_.mesh.shape().expert);
}

StepGradient ParallelStrategy::finish_gradients(Optimizer& optimizer, GradScaler& scaler,
                                                const std::vector<MicroBatchLoss>& losses) {
  optimizer.complete_gradients();
  sum_partial_gradients_();
  const auto gradients = optimizer.gradients();
  average_experts(optimizer);
  loss_weights_.correct(gradients, losses);
  auto found_inf = scaler.unscale(gradients);
  if (found_inf && updating_ranks_.size() > 1) {
    updating_ranks_.all_reduce_sum(*found_inf);
    found_inf->clamp_max_(1.0);
  }
  return {norm_.of(gradients), std::move(found_inf)};
}

void ParallelStrategy::update(Optimizer& optimizer, double learning_rate,
                              const torch::Tensor& found_inf, const torch::Tensor& scale) {
  const auto copy_of = [this](const torch::Tensor& weight) { return weight_copies_.of(weight); };
  if (optimizer.step(learning_rate, found_inf, scale, copy_of)) {
    std::vector<torch::Tensor> weights;
    for (const Parameter& parameter : optimizer.parameters()) weights.push_back(parameter.tensor);
    weight_copies_.written(weights);
  }
  const bool are_recorded = setup_.config.logging.histogram_every_steps.has_value();
  if (makes_gradients() && !are_recorded) optimizer.zero_grad(/*set_to_none=*/true);
}

double ParallelStrategy::step_loss(const std::vector<MicroBatchLoss>& losses) {
  const double own = loss_weights_.step_loss(with_means(losses));
  // Equal on ranks that share layers, unless one of them has got a NaN: then all have to know.
  for (const double loss : setup_.mesh.tensor().gather_doubles(own)) {
    if (!std::isfinite(loss)) return loss;
  }
  return own;
}

}  // namespace ddp::train
