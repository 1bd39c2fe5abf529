// What a snapshot holds of a training, as this rank and as all of them hold it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <string_view>

#include "trainer/config/keys/config_text.h"
#include "trainer/optim/trained_parameters.h"
#include "trainer/run/state/cut_state.h"
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

/// The elements of a piece in the tensor that it is a piece of.
torch::Tensor piece_in(const torch::Tensor& tensor, const NamedTensor& piece) {
  return tensor.view(-1)
      .narrow(0, piece.piece->begin, piece.tensor.numel())
      .view(piece.tensor.sizes());
}

/// Where a tensor is a piece, the one that it is a piece of, on the host, with this piece's values.
std::vector<NamedTensor> with_whole_tensors(std::vector<NamedTensor> tensors) {
  for (NamedTensor& each : tensors) {
    if (!each.piece) continue;
    const auto whole = torch::zeros(each.piece->shape, each.tensor.scalar_type());
    piece_in(whole, each).copy_(each.tensor);
    each = {each.name, whole};
  }
  return tensors;
}

/// Rank 0's values on all ranks of a group whose tensors are on `device`.
void share_through_device(const torch::Tensor& tensor, torch::Device device, ProcessGroup& group) {
  const auto copy = tensor.to(device);
  group.broadcast({copy});
  tensor.copy_(copy);
}

/// The place of a tensor's section in the order of Trainer::state().
std::size_t section_of(std::string_view tensor) {
  constexpr std::array<std::string_view, 4> kSections = {"model.", "optimizer.", "buffer.", "ema."};
  const auto found =
      std::find_if(kSections.begin(), kSections.end(),
                   [&](std::string_view section) { return tensor.starts_with(section); });
  return static_cast<std::size_t>(found - kSections.begin());
}

}  // namespace

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
  if (sync_) sync_->settle_weights();
  std::vector<NamedTensor> result;
  if (shards_ == nullptr || !shards_->divides_weights()) {
    for (const auto& p : task_.parameters()) result.push_back({kModel + p.name, p.tensor.detach()});
    return result;
  }
  const std::size_t in_snapshots = task_.parameters().size();
  for (const OwnShard& own : shards_->own()) {
    if (own.shard.parameter >= in_snapshots) continue;
    const auto& [name, tensor, whole] = shards_->parameters()[own.shard.parameter];
    result.push_back({kModel + name, own.value,
                      Piece{own.shard.parameter, tensor.sizes().vec(), own.shard.begin}});
  }
  return result;
}

std::vector<NamedTensor> Trainer::whole_weights() const {
  auto own = weights();
  if (shards_ != nullptr && shards_->divides_weights()) own = sharded_state_->gather(own);
  return cut_state_ ? cut_state_->gather(std::move(own)) : own;
}

std::vector<NamedTensor> Trainer::state_where(bool divided) const {
  auto tensors = state();
  std::erase_if(tensors, [&](const auto& each) { return each.piece.has_value() != divided; });
  return tensors;
}

void Trainer::load(const SnapshotMeta& meta, const OpenedSnapshot* snapshot) {
  const Config before = config_from_json(meta.config_json);
  without_state_ = parameters_without_state(before, config_, task_.whole_shapes());
  if (cut_state_)
    deal_out_cuts(snapshot, before);
  else if (snapshot != nullptr)
    load_tensors(before, *snapshot);
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

void Trainer::restart_averages() {
  optimizer_->refresh_masters();
  average_.restart();
}

bool Trainer::is_optional(const Config& before, const std::string& tensor) const {
  if (without_state_.contains(parameter_of(tensor))) return true;
  return tensor.starts_with("ema.")
             ? before.trainer.ema_decay == 0.0
             : momentum_of(before.optimizer) == 0.0 && tensor.ends_with(".momentum_buffer");
}

// Averages start as the weights, and the optimizer's state, of parameters that were frozen or had
// another optimizer, starts at 0; so does momentum that is new.
void Trainer::load_tensors(const Config& before, const OpenedSnapshot& snapshot) {
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
  restart_averages();
  for (const auto& each : of_training) {
    if (!is_optional(before, each.name) || snapshot.file->find(each.name) != nullptr) load(each);
  }
}

void Trainer::deal_out_cuts(const OpenedSnapshot* snapshot, const Config& before) {
  const auto load_local_parts = [&](const std::vector<NamedTensor>& own) {
    const auto held = with_whole_tensors(own);
    cut_state_->load_local_parts(
        snapshot, held, [&](const std::string& name) { return is_optional(before, name); });
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (own[i].piece) own[i].tensor.copy_(piece_in(held[i].tensor, own[i]));
    }
  };
  const torch::NoGradGuard no_grad;
  load_local_parts(weights());
  restart_averages();
  auto of_training = state();
  std::erase_if(of_training, [](const auto& each) { return each.name.starts_with("model."); });
  load_local_parts(of_training);
}

// A rank that has read a file has it from its own mapping: what counts is what the ranks hold then.
void Trainer::share_state(const OpenedSnapshot* snapshot) {
  if (data_.size() == 1 || cut_state_) return;
  const auto readers = data_.gather_doubles(snapshot != nullptr ? 1.0 : 0.0);
  const bool all = std::find(readers.begin(), readers.end(), 0.0) == readers.end();
  if (all && !compare_replicas()) return;
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> on_device;
  for (const auto& each : state_where(/*divided=*/false)) {
    if (each.tensor.device() == plan_.device)
      on_device.push_back(each.tensor);
    else
      share_through_device(each.tensor, plan_.device, data_);
  }
  data_.broadcast(on_device);
  if (shards_ == nullptr) return;
  const Config before =
      snapshot != nullptr ? config_from_json(snapshot->meta.config_json) : config_;
  const auto load_local_parts = [&](const std::vector<NamedTensor>& pieces) {
    sharded_state_->load_local_parts(
        snapshot, pieces, [&](const std::string& name) { return is_optional(before, name); });
  };
  if (shards_->divides_weights()) load_local_parts(weights());
  restart_averages();
  auto of_training = state_where(/*divided=*/true);
  std::erase_if(of_training, [](const auto& each) { return each.name.starts_with("model."); });
  load_local_parts(of_training);
}

// In the order of state().
std::vector<NamedTensor> Trainer::whole_state() const {
  auto own = state_of_data_ranks();
  return cut_state_ ? cut_state_->gather(std::move(own)) : own;
}

std::vector<NamedTensor> Trainer::state_of_data_ranks() const {
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
  meta.world_size = world_.size();
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
  state.is_copy = cut_state_ != nullptr;
  for (auto& each : whole_state()) state.tensors.emplace_back(each.name, each.tensor);
  const auto generator = generator_state();
  state.tensors.emplace_back(generator.name, generator.tensor);
  state.ready = record_ready(plan_.device);
  return state;
}

TrainingState Trainer::capture_shard() const {
  TrainingState state{capture_meta(), {}, {}, ShardToSave{}};
  ShardToSave& shard = *state.shard;
  shard.id = {"", 0, step_, world_.rank(), world_.size()};
  auto whole = state_where(/*divided=*/false);
  whole.push_back(generator_state());
  shard.tensors = logical_tensors(whole);
  shard.pieces = own_share(whole, world_.rank(), world_.size());
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
  auto held = state_where(/*divided=*/false);
  auto own = find_difference(held, data_, before_wait);
  if (!mesh_.divides_model()) return own;
  MeshPlace place = mesh_.place();
  if (own) place.data = own->rank;
  // The ranks that share layers all have their norms.
  std::erase_if(held, [&](const auto& each) { return !cut_state_->holds_whole(each.name); });
  const auto of_shared_layers = find_difference(held, mesh_.tensor(), before_wait);
  if (!own && of_shared_layers) {
    own = of_shared_layers;
    place.tensor = own->rank;
  }
  // Each part of the model has been compared by ranks of its own.
  if (own) own->rank = place.rank_in(mesh_.shape());
  for (const auto& text :
       world_.gather_texts(own ? fmt::format("{} {}", own->rank, own->tensor) : "")) {
    const auto space = text.find(' ');
    if (!text.empty()) return ReplicaDifference{text.substr(space + 1), std::stoi(text)};
  }
  return std::nullopt;
}

std::vector<NamedTensor> Trainer::gradients() const {
  std::vector<NamedTensor> gradients;
  for (const auto& p : optimizer_->parameters())
    gradients.push_back({p.name, p.tensor.grad(), p.piece});
  if (shards_ != nullptr) gradients = sharded_state_->gather(gradients);
  if (!cut_state_) return gradients;
  for (auto& each : gradients) each.name.insert(0, kModel);
  gradients = cut_state_->gather(std::move(gradients));
  for (auto& each : gradients) each.name.erase(0, std::strlen(kModel));
  return gradients;
}

}  // namespace ddp::train
