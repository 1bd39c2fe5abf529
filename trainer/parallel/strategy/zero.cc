#include "trainer/parallel/strategy/zero.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "trainer/parallel/device/collective_wait.h"
#include "trainer/parallel/device/device_progress.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr int64_t kFirstBucketBytes = 1024 * 1024;  // as c10d's Reducer: communication begins early
constexpr double kMiB = 1024.0 * 1024.0;

int64_t elements_of(double mib) {
  return std::max<int64_t>(1, static_cast<int64_t>(mib * kMiB / sizeof(float)));
}

}  // namespace

ZeroDataParallel::ZeroDataParallel(std::vector<Parameter> parameters, ProcessGroup& group,
                                   Options options, FirstValues values)
    : ShardedDataParallel(std::move(parameters), group), options_(options) {
  const CollectiveWait waiting;
  const torch::NoGradGuard no_grad;
  if (values == FirstValues::kOfRankZero) {
    std::vector<torch::Tensor> tensors;
    for (const auto& parameter : this->parameters()) tensors.push_back(parameter.tensor);
    group.broadcast(tensors);
  }
  plan(elements_of(options.bucket_cap_mb));
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    watch_gradient(i, [this, i] { gradient_ready(i); });
}

void ZeroDataParallel::plan(int64_t bucket_elements) {
  const int64_t first =
      std::min<int64_t>(bucket_elements, kFirstBucketBytes / static_cast<int64_t>(sizeof(float)));
  buckets_of_.resize(parameters_.size());
  for (auto& planned : plan_shards(sizes(), group_.size(), bucket_elements, first)) {
    for (const auto& shards : planned.of_rank) {
      for (const Shard& shard : shards) {
        auto& buckets = buckets_of_[shard.parameter];
        if (buckets.empty() || buckets.back() != buckets_.size())
          buckets.push_back(buckets_.size());
      }
    }
    add_bucket(std::move(planned), /*trained=*/true, [this](const Shard& shard, int64_t) {
      return part_of(parameters_[shard.parameter].tensor.detach(), shard);
    });
  }
  end_plan();
  weights_there_.resize(buckets_.size());
  sharing_order_.resize(buckets_.size());
  std::iota(sharing_order_.begin(), sharing_order_.end(), 0);
  for (const auto& shards : shards_of_ranks()) {
    auto& weights = weights_of_ranks_.emplace_back();
    for (const Shard& shard : shards)
      weights.push_back(part_of(parameters_[shard.parameter].tensor.detach(), shard));
  }
}

void ZeroDataParallel::begin_micro_batch(bool last) {
  if (!buckets_of_unit_.empty()) wait_for_weights(buckets_of_unit_.back());
  reducing_ = last || options_.every_micro_batch;
  if (reducing_) begin_reducing();
}

void ZeroDataParallel::begin_reducing() {
  next_bucket_ = 0;
  arrived_.assign(parameters_.size(), false);
  missing_.assign(buckets_.size(), 0);
  unpacked_.clear();
  for (const auto& buckets : buckets_of_) {
    unpacked_.push_back(buckets.size());
    for (const std::size_t bucket : buckets) ++missing_[bucket];
  }
}

void ZeroDataParallel::backward(const torch::Tensor& loss) {
  settle_weights();  // of units that had no part in the forward pass
  if (!reducing_) return loss.backward();
  const CollectiveWait waiting;  // its first buckets are on their way before it has ended
  backward_began_ = Clock::now();
  loss.backward();
  finish_reducing();
}

// On the thread of the backward pass. Buckets are reduced in their order, which is that of all
// ranks, whatever the order in which they fill up.
void ZeroDataParallel::gradient_ready(std::size_t parameter) {
  if (!reducing_) return;
  last_gradient_ = Clock::now();
  if (arrived_[parameter]) {
    throw RunError(fmt::format("parameter {} got two gradients in one backward pass",
                               parameters_[parameter].name));
  }
  arrived_[parameter] = true;
  for (const std::size_t bucket : buckets_of_[parameter]) --missing_[bucket];
  while (next_bucket_ < buckets_.size() && missing_[next_bucket_] == 0) reduce(next_bucket_++);
}

void ZeroDataParallel::reduce(std::size_t bucket) {
  const torch::NoGradGuard no_grad;
  if (bucket == 0) first_reduced_ = Clock::now();
  const auto table = table_for(tables_, bucket, bucket);
  if (reducing_)
    pack(buckets_[bucket], table);
  else
    table.zero_();
  tables_.send(bucket, rows_->reduce_scatter(table, buckets_[bucket].gradient_row,
                                             /*add=*/options_.every_micro_batch));
}

void ZeroDataParallel::pack(const Bucket& bucket, const torch::Tensor& table) {
  std::vector<std::size_t> packed;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto& shards = bucket.plan.of_rank[static_cast<std::size_t>(rank)];
    for_each_in_row(shards, [&](const Shard& shard, int64_t at) {
      pack_gradient(shard, as_shard(table[rank], at, shard), options_.averaged_over);
      if (packed.empty() || packed.back() != shard.parameter) packed.push_back(shard.parameter);
    });
  }
  for (const std::size_t parameter : packed)
    if (--unpacked_[parameter] == 0) parameters_[parameter].tensor.mutable_grad().reset();
}

void ZeroDataParallel::finish_reducing() {
  if (next_bucket_ != buckets_.size()) {
    const auto unused = std::find_if(parameters_.begin(), parameters_.end(),
                                     [](const auto& p) { return !p.tensor.grad().defined(); });
    throw RunError(fmt::format("parameter {} had no part in the loss; freeze it",
                               (unused == parameters_.end() ? parameters_.begin() : unused)->name));
  }
  tables_.wait();
  tables_.free();
  reduced_ = Clock::now();
  reducing_ = false;
}

// A table of zeros for each bucket: the ranks that have this micro-batch wait for it.
void ZeroDataParallel::skip_micro_batch(const std::function<torch::Tensor()>& /*forward*/) {
  settle_weights();
  reducing_ = false;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) reduce(bucket);
  tables_.wait();
  tables_.free();
}

void ZeroDataParallel::share_weights() {
  if (auto work = rows_->gather_pieces(weights_of_ranks_)) {
    work->wait();
    for (const Parameter& each : parameters_) each.tensor.unsafeGetTensorImpl()->bump_version();
    return;
  }
  settle_weights();
  TablePair tables;
  gather_weights(tables, [](std::size_t) {});
}

void ZeroDataParallel::gather_weights(TablePair& tables,
                                      const std::function<void(std::size_t bucket)>& taken) {
  const torch::NoGradGuard no_grad;
  for (std::size_t turn = 0; turn <= sharing_order_.size(); ++turn) {
    if (turn < sharing_order_.size()) send_own_row(tables, turn);
    if (turn == 0) continue;
    take_rows(tables, turn - 1);
    taken(sharing_order_[turn - 1]);
  }
}

void ZeroDataParallel::send_own_row(TablePair& tables, std::size_t turn) {
  const Bucket& bucket = buckets_[sharing_order_[turn]];
  const auto table = table_for(tables, turn, sharing_order_[turn]);
  std::size_t next = bucket.first_own;
  for_each_in_row(own_part_of(bucket), [&](const Shard& shard, int64_t at) {
    as_shard(table[group_.rank()], at, shard).copy_(own_[next++].value);
  });
  tables.send(turn, rows_->all_gather(table));
}

void ZeroDataParallel::take_rows(TablePair& tables, std::size_t turn) {
  const auto& of_rank = buckets_[sharing_order_[turn]].plan.of_rank;
  const auto table = table_for(tables, turn, sharing_order_[turn]);
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (rank == group_.rank()) continue;
    for_each_in_row(of_rank[static_cast<std::size_t>(rank)], [&](const Shard& shard, int64_t at) {
      part_of(parameters_[shard.parameter].tensor.detach(), shard)
          .copy_(as_shard(table[rank], at, shard));
    });
  }
}

void ZeroDataParallel::overlap_gather_with_forward(
    const std::vector<std::vector<std::size_t>>& units) {
  TORCH_INTERNAL_ASSERT(!parameters_.front().tensor.is_cpu());
  std::vector<std::size_t> unit_of(parameters_.size(), units.size());
  for (std::size_t i = 0; i < units.size(); ++i) {
    for (const std::size_t parameter : units[i]) unit_of[parameter] = i;
  }
  std::vector<std::set<std::size_t>> buckets(units.size() + 1);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    buckets[unit_of[i]].insert(buckets_of_[i].begin(), buckets_of_[i].end());
  sharing_order_.clear();
  std::set<std::size_t> placed;
  const auto place = [&](const std::set<std::size_t>& all) {
    for (const std::size_t bucket : all) {
      if (placed.insert(bucket).second) sharing_order_.push_back(bucket);
    }
  };
  place(buckets.back());
  for (const auto& all : buckets) {
    place(all);
    buckets_of_unit_.emplace_back(all.begin(), all.end());
  }
}

void ZeroDataParallel::begin_sharing_weights() {
  if (buckets_of_unit_.empty()) return share_weights();
  settle_weights();
  on_their_way_ = true;
  table_for(weight_tables_, 0, sharing_order_[0]);  // their memory belongs to the present queue
  table_for(weight_tables_, 1, sharing_order_[0]);
  const auto device = parameters_.front().tensor.device();
  const SideQueue queue(device);
  gather_weights(weight_tables_,
                 [&](std::size_t bucket) { weights_there_[bucket] = record_ready(device); });
}

// What the device computes up to here is this rank's own; from here on it may wait for others.
void ZeroDataParallel::wait_for_weights(const std::vector<std::size_t>& buckets) {
  const auto device = parameters_.front().tensor.device();
  bool waits = false;
  for (const std::size_t bucket : buckets) {
    const auto there = std::exchange(weights_there_[bucket], nullptr);
    if (!there) continue;
    if (!std::exchange(waits, true)) DeviceProgress::own_work_ends_here(device);
    there->make_stream_wait();
  }
  if (!waits) return;
  DeviceProgress::collectives_end_at(record_ready(device));
  on_their_way_ = std::any_of(weights_there_.begin(), weights_there_.end(),
                              [](const ReadyEvent& there) { return there != nullptr; });
  if (!on_their_way_) weight_tables_.free();
}

void ZeroDataParallel::settle_weights() { wait_for_weights(sharing_order_); }

}  // namespace ddp::train
