#include "trainer/parallel/strategy/sharded_data_parallel.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "trainer/parallel/strategy/ddp.h"

namespace ddp::train {
namespace {

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

}  // namespace

torch::Tensor TablePair::take(std::size_t turn, int64_t rows, int64_t row, int64_t longest_row,
                              const torch::TensorOptions& options) {
  Table& table = of(turn);
  table.work.wait();
  if (!table.memory.defined()) table.memory = torch::empty({rows * longest_row}, options);
  return table.memory.narrow(0, 0, rows * row).view({rows, row});
}

void TablePair::wait() {
  for (Table& table : tables_) table.work.wait();
}

void TablePair::free() {
  for (Table& table : tables_) table = {};
}

ShardedDataParallel::ShardedDataParallel(std::vector<Parameter> parameters, ProcessGroup& group)
    : parameters_(std::move(parameters)),
      group_(group),
      rows_(group.row_collectives(parameters_.front().tensor.device())) {
  check_same_parameters(tensors_of(parameters_), group);
  // Its elements are in another order in memory than in its shape.
  for (auto& parameter : parameters_) parameter.whole |= !parameter.tensor.is_contiguous();
}

ShardedDataParallel::~ShardedDataParallel() {
  for (const auto& unhook : unhook_) unhook();
}

std::vector<ShardedSize> ShardedDataParallel::sizes() const {
  std::vector<ShardedSize> sizes;
  for (const auto& parameter : parameters_)
    sizes.push_back({parameter.tensor.numel(), parameter.whole});
  return sizes;
}

void ShardedDataParallel::add_bucket(
    ShardBucket plan, bool trained,
    const std::function<torch::Tensor(const Shard&, int64_t)>& value_of) {
  buckets_.push_back({std::move(plan), own_.size(), {}});
  Bucket& bucket = buckets_.back();
  const auto options = parameters_.front().tensor.options().requires_grad(false);
  if (trained) bucket.gradient_row = torch::zeros({bucket.plan.row}, options);
  for_each_in_row(own_part_of(bucket), [&](const Shard& shard, int64_t at) {
    own_.push_back({shard, value_of(shard, at),
                    trained ? as_shard(bucket.gradient_row, at, shard) : torch::Tensor()});
  });
}

void ShardedDataParallel::end_plan() {
  const bool updates_any =
      std::any_of(own_.begin(), own_.end(), [](const auto& own) { return own.gradient.defined(); });
  if (!updates_any) {
    const auto options = parameters_.front().tensor.options().requires_grad(false);
    const auto trained =
        std::find_if(parameters_.begin(), parameters_.end(),
                     [](const Parameter& each) { return each.tensor.requires_grad(); });
    const auto place = static_cast<std::size_t>(trained - parameters_.begin());
    own_.push_back({{place, 0, 0}, torch::zeros({0}, options), torch::zeros({0}, options)});
  }
}

void ShardedDataParallel::watch_gradient(std::size_t parameter, std::function<void()> arrived) {
  const auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[parameter].tensor);
  using Values = torch::autograd::variable_list;
  const auto hook =
      accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [arrived = std::move(arrived)](const Values& outputs, const Values&) {
            arrived();
            return outputs;
          }));
  unhook_.push_back([accumulator, hook] { accumulator->del_post_hook(hook); });
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

void ShardedDataParallel::pack_gradient(const Shard& shard, const torch::Tensor& to,
                                        int averaged_over) const {
  const auto& parameter = parameters_[shard.parameter].tensor;
  if (parameter.grad().defined()) {
    auto out = to;
    at::div_out(out, part_of(gradient_of(parameter), shard),
                torch::scalar_tensor(averaged_over, torch::kFloat32));
  } else {
    to.zero_();
  }
}

torch::Tensor ShardedDataParallel::table_for(TablePair& tables, std::size_t turn,
                                             std::size_t bucket) const {
  int64_t longest = 0;
  for (const Bucket& each : buckets_) longest = std::max(longest, each.plan.row);
  return tables.take(turn, group_.size(), buckets_[bucket].plan.row, longest,
                     parameters_.front().tensor.options().requires_grad(false));
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
