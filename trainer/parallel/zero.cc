#include "trainer/parallel/zero.h"

#include <fmt/format.h>

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "trainer/parallel/collective_wait.h"
#include "trainer/parallel/ddp.h"
#include "trainer/parallel/gradient_norm.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr int64_t kFirstBucketBytes = 1024 * 1024;  // as c10d's Reducer: communication begins early
constexpr double kMiB = 1024.0 * 1024.0;

int64_t elements_of(double mib) {
  return std::max<int64_t>(1, static_cast<int64_t>(mib * kMiB / sizeof(float)));
}

std::vector<torch::Tensor> tensors_of(const std::vector<ShardedDataParallel::Parameter>& all) {
  std::vector<torch::Tensor> tensors;
  for (const auto& parameter : all) tensors.push_back(parameter.tensor);
  return tensors;
}

/// Laid out in memory as its parameter is.
torch::Tensor gradient_of(const torch::Tensor& parameter) {
  const auto& gradient = parameter.grad();
  if (gradient.strides() == parameter.strides()) return gradient;
  auto same = torch::empty_strided(parameter.sizes(), parameter.strides(), gradient.options());
  same.copy_(gradient);
  return same;
}

int64_t blocks_of(int64_t elements) { return (elements + kNormBlock - 1) / kNormBlock; }

/// Calls `visit(shard, place in the row)`.
template <class Visit>
void for_each_in_row(const std::vector<Shard>& shards, const Visit& visit) {
  int64_t at = 0;
  for (const Shard& shard : shards) {
    visit(shard, at);
    at += padded_size(shard);
  }
}

}  // namespace

ShardedDataParallel::ShardedDataParallel(std::vector<Parameter> parameters, ProcessGroup& group,
                                         Options options, FirstValues values)
    : parameters_(std::move(parameters)),
      group_(group),
      options_(options),
      rows_(group.row_collectives(parameters_.front().tensor.device())) {
  const CollectiveWait waiting;
  const torch::NoGradGuard no_grad;
  check_same_parameters(tensors_of(parameters_), group);
  if (values == FirstValues::kOfRankZero) group.broadcast(tensors_of(parameters_));
  // Its elements are in another order in memory than in its shape.
  for (auto& parameter : parameters_) parameter.whole |= !parameter.tensor.is_contiguous();
  plan(elements_of(options.bucket_cap_mb));
  list_own_blocks();
  watch_gradients();
}

ShardedDataParallel::~ShardedDataParallel() {
  for (const auto& unhook : unhook_) unhook();
}

void ShardedDataParallel::plan(int64_t bucket_elements) {
  std::vector<ShardedSize> sizes;
  for (const auto& [name, tensor, whole] : parameters_) sizes.push_back({tensor.numel(), whole});
  const int64_t first =
      std::min<int64_t>(bucket_elements, kFirstBucketBytes / static_cast<int64_t>(sizeof(float)));
  buckets_of_.resize(parameters_.size());
  for (auto& planned : plan_shards(sizes, group_.size(), bucket_elements, first)) {
    for (const auto& shards : planned.of_rank) {
      for (const Shard& shard : shards) {
        auto& buckets = buckets_of_[shard.parameter];
        if (buckets.empty() || buckets.back() != buckets_.size())
          buckets.push_back(buckets_.size());
      }
    }
    buckets_.push_back({std::move(planned), own_.size(), {}});
    hold_own_shards(buckets_.back());
  }
  if (own_.empty()) {
    const auto& value = parameters_.front().tensor.detach();
    own_.push_back({{}, value.flatten().narrow(0, 0, 0), torch::zeros({0}, value.options())});
  }
}

void ShardedDataParallel::hold_own_shards(Bucket& bucket) {
  const auto options = parameters_.front().tensor.options().requires_grad(false);
  bucket.gradient_row = torch::zeros({bucket.plan.row}, options);
  for_each_in_row(
      bucket.plan.of_rank[static_cast<std::size_t>(group_.rank())],
      [&](const Shard& shard, int64_t at) {
        own_.push_back({shard, part_of(parameters_[shard.parameter].tensor.detach(), shard),
                        as_shard(bucket.gradient_row, at, shard)});
      });
}

void ShardedDataParallel::list_own_blocks() {
  std::vector<int64_t> first_block;
  for (const auto& parameter : parameters_) {
    first_block.push_back(blocks_);
    blocks_ += blocks_of(parameter.tensor.numel());
  }
  std::vector<int64_t> places;
  for (const OwnShard& own : own_) {
    const int64_t first = first_block[own.shard.parameter] + own.shard.begin / kNormBlock;
    for (int64_t i = 0; i < blocks_of(own.shard.size()); ++i) places.push_back(first + i);
  }
  own_blocks_ = torch::tensor(places, torch::kInt64).to(own_.front().value.device());
}

void ShardedDataParallel::watch_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[i].tensor);
    using Values = torch::autograd::variable_list;
    const auto hook =
        accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [this, i](const Values& outputs, const Values&) {
              gradient_ready(i);
              return outputs;
            }));
    unhook_.push_back([accumulator, hook] { accumulator->del_post_hook(hook); });
  }
}

torch::Tensor ShardedDataParallel::part_of(const torch::Tensor& tensor, const Shard& shard) const {
  if (parameters_[shard.parameter].whole) return tensor;
  return tensor.view(-1).narrow(0, shard.begin, shard.size());
}

torch::Tensor ShardedDataParallel::as_shard(const torch::Tensor& row, int64_t at,
                                            const Shard& shard) const {
  const auto& [name, parameter, whole] = parameters_[shard.parameter];
  if (!whole) return row.narrow(0, at, shard.size());
  return row.as_strided(parameter.sizes(), parameter.strides(), row.storage_offset() + at);
}

void ShardedDataParallel::begin_micro_batch(bool last) {
  reducing_ = last || options_.every_micro_batch;
  if (reducing_) begin_reducing();
}

void ShardedDataParallel::begin_reducing() {
  next_bucket_ = 0;
  arrived_.assign(parameters_.size(), false);
  missing_.assign(buckets_.size(), 0);
  unpacked_.clear();
  for (const auto& buckets : buckets_of_) {
    unpacked_.push_back(buckets.size());
    for (const std::size_t bucket : buckets) ++missing_[bucket];
  }
}

void ShardedDataParallel::backward(const torch::Tensor& loss) {
  if (!reducing_) return loss.backward();
  const CollectiveWait waiting;  // its first buckets are on their way before it has ended
  backward_began_ = Clock::now();
  loss.backward();
  finish_reducing();
}

// On the thread of the backward pass. Buckets are reduced in their order, which is that of all
// ranks, whatever the order in which they fill up.
void ShardedDataParallel::gradient_ready(std::size_t parameter) {
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

void ShardedDataParallel::reduce(std::size_t bucket) {
  const torch::NoGradGuard no_grad;
  if (bucket == 0) first_reduced_ = Clock::now();
  const auto table = table_for(bucket);
  if (reducing_)
    pack(buckets_[bucket], table);
  else
    table.zero_();
  tables_[bucket % tables_.size()].work = rows_->reduce_scatter(
      table, buckets_[bucket].gradient_row, /*add=*/options_.every_micro_batch);
}

void ShardedDataParallel::pack(const Bucket& bucket, const torch::Tensor& table) {
  std::vector<std::size_t> packed;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto& shards = bucket.plan.of_rank[static_cast<std::size_t>(rank)];
    for_each_in_row(shards, [&](const Shard& shard, int64_t at) {
      auto to = as_shard(table[rank], at, shard);
      const auto& parameter = parameters_[shard.parameter].tensor;
      if (parameter.grad().defined()) {
        at::div_out(to, part_of(gradient_of(parameter), shard),
                    torch::scalar_tensor(options_.averaged_over, torch::kFloat32));
      } else {  // a custom function may return none
        to.zero_();
      }
      if (packed.empty() || packed.back() != shard.parameter) packed.push_back(shard.parameter);
    });
  }
  for (const std::size_t parameter : packed) gradient_packed(parameter);
}

void ShardedDataParallel::gradient_packed(std::size_t parameter) {
  if (--unpacked_[parameter] == 0) parameters_[parameter].tensor.mutable_grad().reset();
}

void ShardedDataParallel::finish_reducing() {
  if (next_bucket_ != buckets_.size()) {
    const auto unused = std::find_if(parameters_.begin(), parameters_.end(),
                                     [](const auto& p) { return !p.tensor.grad().defined(); });
    throw RunError(fmt::format("parameter {} had no part in the loss; freeze it",
                               (unused == parameters_.end() ? parameters_.begin() : unused)->name));
  }
  for (Table& table : tables_) table.work.wait();
  reduced_ = Clock::now();
  reducing_ = false;
}

// A table of zeros for each bucket: the ranks that have this micro-batch wait for it.
void ShardedDataParallel::leave_out_micro_batch() {
  reducing_ = false;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) reduce(bucket);
  for (Table& table : tables_) table.work.wait();
}

// Both are as large as the largest bucket needs, and stay.
torch::Tensor ShardedDataParallel::table_for(std::size_t bucket) {
  Table& table = tables_[bucket % tables_.size()];
  table.work.wait();
  const int64_t ranks = group_.size();
  if (!table.rows.defined()) {
    int64_t longest = 0;
    for (const Bucket& each : buckets_) longest = std::max(longest, each.plan.row);
    table.rows = torch::zeros({ranks * longest}, buckets_.front().gradient_row.options());
  }
  const int64_t row = buckets_[bucket].plan.row;
  return table.rows.narrow(0, 0, ranks * row).view({ranks, row});
}

std::vector<std::vector<Shard>> ShardedDataParallel::shards_of_ranks() const {
  std::vector<std::vector<Shard>> shards(static_cast<std::size_t>(group_.size()));
  for (const Bucket& bucket : buckets_) {
    for (std::size_t rank = 0; rank < shards.size(); ++rank) {
      const auto& of_rank = bucket.plan.of_rank[rank];
      shards[rank].insert(shards[rank].end(), of_rank.begin(), of_rank.end());
    }
  }
  return shards;
}

void ShardedDataParallel::exchange(
    const std::vector<torch::Tensor>& values,
    const std::function<void(int, const Shard&, const torch::Tensor&)>& take) {
  const torch::NoGradGuard no_grad;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    fill_own_row(bucket, values);
    if (bucket > 0) take_rows(bucket - 1, take);
  }
  take_rows(buckets_.size() - 1, take);
}

void ShardedDataParallel::fill_own_row(std::size_t bucket,
                                       const std::vector<torch::Tensor>& values) {
  const auto table = table_for(bucket);
  std::size_t next = buckets_[bucket].first_own;
  for_each_in_row(buckets_[bucket].plan.of_rank[static_cast<std::size_t>(group_.rank())],
                  [&](const Shard& shard, int64_t at) {
                    const auto& value = values[next++];
                    if (value.defined()) as_shard(table[group_.rank()], at, shard).copy_(value);
                  });
  tables_[bucket % tables_.size()].work = rows_->all_gather(table);
}

void ShardedDataParallel::take_rows(
    std::size_t bucket, const std::function<void(int, const Shard&, const torch::Tensor&)>& take) {
  const auto table = table_for(bucket);
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto& shards = buckets_[bucket].plan.of_rank[static_cast<std::size_t>(rank)];
    for_each_in_row(shards, [&](const Shard& shard, int64_t at) {
      take(rank, shard, as_shard(table[rank], at, shard));
    });
  }
}

void ShardedDataParallel::share_weights() {
  std::vector<torch::Tensor> values;
  for (const OwnShard& own : own_) values.push_back(own.value);
  exchange(values, [this](int rank, const Shard& shard, const torch::Tensor& value) {
    if (rank != group_.rank())
      part_of(parameters_[shard.parameter].tensor.detach(), shard).copy_(value);
  });
}

torch::Tensor ShardedDataParallel::global_norm(const std::vector<torch::Tensor>& gradients) {
  const torch::NoGradGuard no_grad;
  auto sums = torch::zeros({blocks_}, own_blocks_.options().dtype(torch::kFloat64));
  sums.index_copy_(0, own_blocks_, block_sums_of_squares(gradients).to(sums.device()));
  group_.all_reduce_sum(sums);  // each entry is another rank's 0 or this one's: exact
  return norm_of_block_sums(sums);
}

void ShardedDataParallel::combine_found_inf(torch::Tensor& found_inf) {
  group_.all_reduce_sum(found_inf);
  found_inf.clamp_max_(1.0);
}

std::optional<SyncTimes> ShardedDataParallel::times() {
  if (!measures_ || !own_.front().value.is_cpu() || reduced_ == Clock::time_point{})
    return std::nullopt;
  const auto ms = [](Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
  };
  return SyncTimes{ms(backward_began_, last_gradient_), ms(first_reduced_, reduced_),
                   ms(first_reduced_, last_gradient_)};
}

}  // namespace ddp::train
