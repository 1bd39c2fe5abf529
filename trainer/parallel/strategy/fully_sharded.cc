#include "trainer/parallel/strategy/fully_sharded.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/parallel/device/collective_wait.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// Lets `parameter` use the memory of `table` from element `at` on. Views of it that autograd has
/// saved use the same storage, and no version counter changes: the values are what they were.
void lend_memory(const torch::Tensor& parameter, const torch::Tensor& table, int64_t at) {
  auto* const storage = parameter.storage().unsafeGetStorageImpl();
  auto* const held = new torch::Tensor(table);
  storage->set_data_ptr_noswap(at::DataPtr(
      table.mutable_data_ptr<float>() + at, held,
      [](void* context) { delete static_cast<torch::Tensor*>(context); }, table.device()));
  storage->set_nbytes(static_cast<std::size_t>(parameter.numel()) * sizeof(float));
}

void free_memory(const torch::Tensor& parameter) {
  auto* const storage = parameter.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, parameter.device()));
  storage->set_nbytes(0);
}

bool owns_its_storage(const torch::Tensor& parameter) {
  return parameter.storage_offset() == 0 && parameter.scalar_type() == torch::kFloat32 &&
         parameter.storage().nbytes() ==
             static_cast<std::size_t>(parameter.numel()) * sizeof(float);
}

/// Sets a flag while it lives.
class While {
 public:
  explicit While(bool& flag) : flag_(flag) { flag_ = true; }
  ~While() { flag_ = false; }
  While(const While&) = delete;
  While& operator=(const While&) = delete;

 private:
  bool& flag_;
};

}  // namespace

FullyShardedDataParallel::FullyShardedDataParallel(
    std::vector<Parameter> parameters, const std::vector<std::vector<std::size_t>>& units,
    ProcessGroup& group, int averaged_over, FirstValues values)
    : ShardedDataParallel(std::move(parameters), group), averaged_over_(averaged_over) {
  const CollectiveWait waiting;
  const torch::NoGradGuard no_grad;
  std::vector<bool> in_root(parameters_.size(), true);
  for (const auto& members : units) {
    for (const std::size_t i : members) in_root[i] = false;
  }
  auto all = units;
  all.emplace_back();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (in_root[i]) all.back().push_back(i);
    TORCH_CHECK(owns_its_storage(parameters_[i].tensor), parameters_[i].name,
                " shares its memory with another tensor");
    if (values == FirstValues::kOfRankZero) group.broadcast({parameters_[i].tensor});
  }
  units_.resize(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const bool trained : {true, false}) divide(units_[i], all[i], trained);
  }
  end_plan();
  for (Unit& unit : units_) watch_gradients(unit);
  // On a GPU the host runs ahead, and only the memory of two tables holds the queue back.
  reductions_.resize(parameters_.front().tensor.is_cpu() ? 1 : 2);
}

void FullyShardedDataParallel::divide(Unit& unit, const std::vector<std::size_t>& members,
                                      bool trained) {
  std::vector<std::size_t> chosen;
  for (const std::size_t i : members) {
    if (parameters_[i].tensor.requires_grad() == trained) chosen.push_back(i);
  }
  if (chosen.empty()) return;
  auto plan = plan_unit(sizes(), chosen, group_.size());
  const auto options = parameters_.front().tensor.options().requires_grad(false);
  Part part{buckets_.size(), {}, torch::zeros({plan.row}, options), {}, {}};
  for (std::size_t rank = 0; rank < plan.of_rank.size(); ++rank) {
    for_each_in_row(plan.of_rank[rank], [&](const Shard& shard, int64_t at) {
      if (shard.begin == 0)
        part.places.push_back({shard.parameter, static_cast<int64_t>(rank) * plan.row + at});
    });
  }
  add_bucket(std::move(plan), trained, [&](const Shard& shard, int64_t at) {
    auto value = as_shard(part.own_row, at, shard);
    value.copy_(part_of(parameters_[shard.parameter].tensor.detach(), shard));
    return value;
  });
  for (const std::size_t i : chosen) free_memory(parameters_[i].tensor);
  unit.parts.push_back(std::move(part));
  if (trained) unit.trained = chosen.size();
}

void FullyShardedDataParallel::watch_gradients(Unit& unit) {
  if (unit.trained == 0) return;
  for (const auto& place : unit.parts.front().places)
    watch_gradient(place.parameter, [this, &unit, place] { gradient_ready(unit, place); });
}

void FullyShardedDataParallel::begin_collecting(Unit& unit) {
  if (unit.there || unit.parts.empty() || is_on_its_way(unit)) return;
  const c10::InferenceMode no_inference(false);
  const torch::NoGradGuard no_grad;
  for (Part& part : unit.parts) {
    part.table = torch::empty({group_.size(), part.own_row.numel()}, part.own_row.options());
    part.table[group_.rank()].copy_(part.own_row);
    part.work = rows_->all_gather(part.table);
  }
}

void FullyShardedDataParallel::collect(Unit& unit) {
  if (unit.there) return;
  begin_collecting(unit);
  for (Part& part : unit.parts) {
    part.work.wait();
    for (const auto& place : part.places)
      lend_memory(parameters_[place.parameter].tensor, part.table, place.at);
  }
  unit.there = true;
}

void FullyShardedDataParallel::collect_root() {
  collect(root());
  begin_collecting(units_.front());
}

void FullyShardedDataParallel::free(Unit& unit) {
  for (Part& part : unit.parts) {
    if (unit.there) {
      for (const auto& place : part.places) free_memory(parameters_[place.parameter].tensor);
    }
    part.table.reset();
    part.work = {};
  }
  unit.there = false;
}

void FullyShardedDataParallel::free_all() {
  for (Unit& unit : units_) {
    for (Part& part : unit.parts) part.work.wait();
    free(unit);
  }
}

void FullyShardedDataParallel::abandon() {
  for (Unit& unit : units_) {
    free(unit);
    unit.gradients.reset();
    unit.unpacked.clear();
  }
  for (Reduction& reduction : reductions_) reduction = {};
}

void FullyShardedDataParallel::end_inference() {
  try {
    free_all();
  } catch (...) {  // the next collective fails for the same reason
    abandon();
  }
}

void FullyShardedDataParallel::free_other_units(const Unit& used) {
  for (Unit& unit : units_) {
    if (unit.there && &unit != &used) free(unit);
  }
}

void FullyShardedDataParallel::before_forward(std::size_t unit) {
  if (in_backward_) {  // to be computed again: its gradients come all at once, at the end
    before_backward(unit);
    return collect_next(units_[unit]);
  }
  collect(units_[unit]);
  if (unit + 1 < units_.size()) begin_collecting(units_[unit + 1]);
}

void FullyShardedDataParallel::after_forward(std::size_t unit, const torch::Tensor& x,
                                             const torch::Tensor& y) {
  if (!y.defined()) return abandon();
  if (!in_backward_) free(units_[unit]);
  if (!y.requires_grad()) return;
  y.register_hook([this, unit](const torch::Tensor&) { before_backward(unit); });
  if (x.requires_grad())
    x.register_hook([this, unit](const torch::Tensor&) { after_backward(unit); });
}

// The backward pass of the units after this one is over, and of what follows the last unit.
void FullyShardedDataParallel::before_backward(std::size_t unit) {
  free_other_units(units_[unit]);
  collect(units_[unit]);
  if (units_[unit].trained == 0) collect_next(units_[unit]);
}

void FullyShardedDataParallel::after_backward(std::size_t unit) {
  free(units_[unit]);
  if (unit == 0) collect(root());  // for what precedes it
}

void FullyShardedDataParallel::collect_next(Unit& unit) {
  if (&unit == &root()) return;
  const auto place = static_cast<std::size_t>(&unit - units_.data());
  begin_collecting(place > 0 ? units_[place - 1] : root());
}

void FullyShardedDataParallel::begin_micro_batch(bool /*last*/) {
  for (Unit& unit : units_) unit.missing = unit.trained;
  arrived_.assign(parameters_.size(), false);
  collect_root();
}

void FullyShardedDataParallel::backward(const torch::Tensor& loss) {
  const CollectiveWait waiting;  // its first reductions are on their way before it has ended
  const While now(in_backward_);
  backward_began_ = Clock::now();
  first_reduced_ = {};
  try {
    loss.backward();
    check_complete();
  } catch (...) {
    abandon();
    throw;
  }
  for (Reduction& reduction : reductions_) reduction.wait();
  free_all();
  reduced_ = Clock::now();
}

void FullyShardedDataParallel::Reduction::wait() {
  work.wait();
  table.reset();
}

// The other ranks have this micro-batch: they wait for this one's rows of weights, and its zeros.
void FullyShardedDataParallel::skip_micro_batch(const std::function<torch::Tensor()>& forward) {
  const While now(leaves_out_);
  begin_micro_batch(/*last=*/true);
  backward(forward());
}

// On the thread of the backward pass. Small gradients wait for larger ones: the last norm's is
// computed first, the embedding's last, and a table for both would be there all the time.
void FullyShardedDataParallel::gradient_ready(Unit& unit, const Part::Place& place) {
  constexpr int64_t kNotable = 16;  // part of the table
  if (arrived_[place.parameter]) {
    throw RunError(fmt::format("parameter {} got two gradients in one backward pass",
                               parameters_[place.parameter].name));
  }
  last_gradient_ = Clock::now();
  arrived_[place.parameter] = true;
  --unit.missing;
  unit.unpacked.push_back(place);
  int64_t elements = 0;
  for (const auto& each : unit.unpacked) elements += parameters_[each.parameter].tensor.numel();
  const int64_t table = buckets_[unit.parts.front().bucket].plan.row * group_.size();
  if (unit.missing == 0 || unit.gradients.defined() || elements * kNotable >= table) pack(unit);
  if (unit.missing == 0) reduce(unit);
}

void FullyShardedDataParallel::pack(Unit& unit) {
  const torch::NoGradGuard no_grad;
  const Bucket& bucket = buckets_[unit.parts.front().bucket];
  if (!unit.gradients.defined()) {
    reductions_[next_reduction_].wait();
    collect_next(unit);  // not earlier, when there may be another table and all activations
    unit.gradients = torch::empty({group_.size() * bucket.plan.row}, bucket.gradient_row.options());
  }
  for (const auto& place : unit.unpacked) {
    auto& parameter = parameters_[place.parameter].tensor;
    const Shard all{place.parameter, 0, parameter.numel()};
    const auto to = as_shard(unit.gradients, place.at, all);
    if (leaves_out_)
      to.zero_();
    else
      pack_gradient(all, to, averaged_over_);
    parameter.mutable_grad().reset();
  }
  unit.unpacked.clear();
}

void FullyShardedDataParallel::reduce(Unit& unit) {
  const Bucket& bucket = buckets_[unit.parts.front().bucket];
  if (first_reduced_ == Clock::time_point{}) first_reduced_ = Clock::now();
  Reduction& reduction = reductions_[next_reduction_];
  next_reduction_ = (next_reduction_ + 1) % reductions_.size();
  reduction.wait();
  reduction.table = std::exchange(unit.gradients, {}).view({group_.size(), bucket.plan.row});
  reduction.work = rows_->reduce_scatter(reduction.table, bucket.gradient_row, /*add=*/true);
}

void FullyShardedDataParallel::check_complete() const {
  for (const Unit& unit : units_) {
    if (unit.missing == 0) continue;
    const auto& places = unit.parts.front().places;
    const auto unused = std::find_if(places.begin(), places.end(),
                                     [&](const auto& place) { return !arrived_[place.parameter]; });
    throw RunError(fmt::format("parameter {} had no part in the loss; freeze it",
                               parameters_[unused->parameter].name));
  }
}

}  // namespace ddp::train
