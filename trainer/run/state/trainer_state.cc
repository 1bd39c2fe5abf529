// What a snapshot holds of a training, as this rank and as all of them hold it.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "trainer/config/config.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/model/lora.h"
#include "trainer/optim/trained_parameters.h"
#include "trainer/run/trainer.h"
#include "trainer/runtime/seed.h"
#include "trainer/snapshot/resume_check.h"

namespace ddp::train {
namespace {

/// The state of the device's default generator if it were seeded with `seed`; the generator itself
/// stays as it is.
torch::Tensor seeded_state(torch::Device device, uint64_t seed) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  auto copy = generator.clone();
  copy.set_current_seed(seed);
  return copy.get_state();
}

constexpr const char* kModel = "model.";

}  // namespace

std::vector<NamedTensor> Trainer::state() const {
  std::vector<NamedTensor> result = strategy_->weights();
  for (const auto& [name, tensor, layout] : optimizer_->state())
    result.push_back({"optimizer." + name, tensor, layout});
  for (const auto& each : task_.buffers()) result.push_back({"buffer." + each.name, each.tensor});
  for (const auto& [name, tensor, layout] : average_.state())
    result.push_back({"ema." + name, tensor, layout});
  return result;
}

void Trainer::load(const SnapshotMeta& meta, const OpenedSnapshot* snapshot) {
  const Config before = config_from_json(meta.config_json);
  without_state_ = parameters_without_state(before, config_, task_.whole_shapes());
  load_tensors(before, snapshot);
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

bool Trainer::is_optional(const Config& before, const std::string& tensor) const {
  if (tensor.starts_with("model.") || tensor.starts_with("buffer.")) return false;
  if (without_state_.contains(parameter_of(tensor))) return true;
  return tensor.starts_with("ema.")
             ? before.trainer.ema_decay == 0.0
             : momentum_of(before.optimizer) == 0.0 && tensor.ends_with(".momentum_buffer");
}

// Averages start as the weights, and the optimizer's state, of parameters that were frozen or had
// another optimizer, starts at 0; so does momentum that is new.
void Trainer::load_tensors(const Config& before, const OpenedSnapshot* snapshot) {
  const auto optional = [&](const std::string& name) { return is_optional(before, name); };
  const auto of_training = [](const NamedTensor& each) {
    return each.name.starts_with("optimizer.") || each.name.starts_with("ema.");
  };
  const auto load_by = [&](const auto& load) {
    auto first = state();
    auto later = first;
    std::erase_if(first, of_training);
    std::erase_if(later, std::not_fn(of_training));
    load(first);
    optimizer_->refresh_masters();
    average_.restart();
    load(later);
  };
  bool each_has_read = true;
  load_by([&](const auto& held) {
    each_has_read = strategy_->state().load(snapshot, held, optional) && each_has_read;
  });
  // A rank that has read a file has it from its own mapping: what counts is what the ranks hold.
  const bool has_replicas = mesh_.data().size() > 1 || mesh_.tensor().size() > 1;
  if (!each_has_read || !has_replicas || !compare_replicas([] {})) return;
  load_by(
      [&](const auto& held) { strategy_->state().load_from_rank_zero(snapshot, held, optional); });
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
  meta.world_size = mesh_.world().size();
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
          seeded_state(plan_.device,
                       dropout_seed(static_cast<uint64_t>(config_.trainer.seed), step_, 0))};
}

TrainingState Trainer::capture() const {
  TrainingState state{capture_meta(), {}, {}};
  state.is_copy = mesh_.divides_model();  // otherwise rank 0 has some of it anyway
  for (auto& each : strategy_->state().gather(this->state()))
    state.tensors.emplace_back(each.name, each.tensor);
  const auto generator = generator_state();
  state.tensors.emplace_back(generator.name, generator.tensor);
  state.ready = record_ready(plan_.device);
  return state;
}

TrainingState Trainer::capture_shard() {
  TrainingState state{capture_meta(), {}, {}, ShardToSave{}};
  ShardToSave& shard = *state.shard;
  shard.id = {"", 0, step_, mesh_.world().rank(), mesh_.world().size()};
  auto held = this->state();
  held.push_back(generator_state());
  shard.pieces = strategy_->state().own_pieces(held, shard.tensors);
  state.tensors = parts_of(shard.pieces);
  state.ready = record_ready(plan_.device);
  return state;
}

std::optional<ReplicaDifference> Trainer::compare_replicas(
    const std::function<void()>& before_wait) {
  auto held = state();
  std::erase_if(held, [](const auto& each) { return each.layout.has_value(); });
  const bool shares_experts = mesh_.shape().expert > 1;
  auto own = find_difference(held, mesh_.copies(), before_wait);
  if (!mesh_.divides_model()) return own;
  MeshPlace place = mesh_.place();
  if (own) place.data = own->rank;
  // The ranks that share layers all have their norms, those that share experts everything else.
  std::erase_if(held, [&](const auto& each) {
    return shares_experts ? is_of_expert(each.name)
                          : !strategy_->state().layout_of(each).is_whole();
  });
  const auto of_shared_layers =
      find_difference(held, shares_experts ? mesh_.model() : mesh_.tensor(), before_wait);
  if (!own && of_shared_layers) {
    own = of_shared_layers;
    (shares_experts ? place.expert : place.tensor) = own->rank;
  }
  // Each part of the model has been compared by ranks of its own.
  if (own) own->rank = place.rank_in(mesh_.shape());
  for (const auto& text :
       mesh_.world().gather_texts(own ? fmt::format("{} {}", own->rank, own->tensor) : "")) {
    const auto space = text.find(' ');
    if (!text.empty()) return ReplicaDifference{text.substr(space + 1), std::stoi(text)};
  }
  return std::nullopt;
}

std::vector<NamedTensor> Trainer::gradients() const {
  std::vector<NamedTensor> gradients;
  for (const auto& p : optimizer_->parameters())
    gradients.push_back({kModel + p.name, p.tensor.grad(), p.layout});
  gradients = strategy_->state().gather(std::move(gradients));
  for (auto& each : gradients) each.name.erase(0, std::strlen(kModel));
  return gradients;
}

}  // namespace ddp::train
