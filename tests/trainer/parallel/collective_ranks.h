// What ranks check of sums and of tables of rows that they exchange.
#pragma once

#include <torch/torch.h>

#include <utility>
#include <vector>

#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train::test {

inline torch::Tensor numbers_of(int rank, torch::ScalarType type, int64_t count) {
  return (torch::arange(count, torch::kFloat64) * 0.37 * (rank + 1)).remainder(60).to(type);
}

inline torch::Tensor sum_in_order(int ranks, torch::ScalarType type, int64_t count) {
  auto sum = numbers_of(0, type, count);
  for (int rank = 1; rank < ranks; ++rank) sum.add_(numbers_of(rank, type, count));
  return sum;
}

/// Sums of every type and size at once, each of them waited for later, with one in between that is
/// waited for at once.
inline bool sums_are_right(ProcessGroup& group) {
  std::vector<torch::Tensor> sums;
  std::vector<torch::Tensor> expected;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (const auto type :
       {torch::kFloat32, torch::kFloat64, torch::kInt32, torch::kInt64, torch::kUInt8}) {
    for (const int64_t count : {0, 1, 1000, 100'003}) {
      std::vector<torch::Tensor> one = {numbers_of(group.rank(), type, count)};
      sums.push_back(one.front());
      expected.push_back(sum_in_order(group.size(), type, count));
      works.push_back(group.c10d()->allreduce(one));
      if (count != 1) continue;
      for (const double value : group.gather_doubles(1.0)) {
        if (value != 1.0) return false;
      }
    }
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i]->wait();
    const auto future = works[i]->getFuture()->value().toTensorVector();
    if (!torch::equal(sums[i], expected[i]) || !future.front().is_same(sums[i])) return false;
  }
  return true;
}

/// The sum of a column, which Gloo takes for a row.
inline bool column_is_right(ProcessGroup& group) {
  const auto table = torch::full({50, 3}, 1.0F + static_cast<float>(group.rank()));
  group.all_reduce_sum(table.select(1, 1));
  return table.select(1, 1).eq(group.size() * (group.size() + 1) / 2).all().item<bool>() &&
         table.select(1, 0).eq(group.rank() + 1).all().item<bool>();
}

/// What goes to Gloo, another operation and another type, and a maximum.
inline bool rarities_are_right(ProcessGroup& group) {
  const int size = group.size();
  c10d::AllreduceOptions smallest;
  smallest.reduceOp = c10d::ReduceOp::MIN;
  std::vector<torch::Tensor> ranks = {torch::tensor({group.rank()}, torch::kInt64)};
  group.c10d()->allreduce(ranks, smallest)->wait();
  const auto halves = torch::ones({7}, torch::kBFloat16);
  group.all_reduce_sum(halves);
  return ranks.front().item<int64_t>() == 0 && halves.eq(size).all().item<bool>() &&
         group.all_reduce_max_async(group.rank()).wait() == size - 1;
}

/// Row `row` of what `rank` contributes.
inline torch::Tensor row_of(int rank, int row, int64_t n) {
  return (torch::arange(n, torch::kFloat32) * 0.37 + 1.1 * row).sin() * (rank + 0.3);
}

/// Reduce-scatters and all-gathers of every size under way at once, with an all-reduce between.
inline bool rows_are_right(ProcessGroup& group) {
  const int size = group.size(), here = group.rank();
  const auto rows = group.row_collectives(torch::kCPU);
  struct Case {
    torch::Tensor own, expected, gathered;
    RowWork reduced, shared;
  };
  std::vector<Case> cases;
  for (const int64_t n : {1, 16, 1000, 8192, 100'003}) {
    for (const bool add : {false, true}) {
      auto table = torch::empty({size, n});
      for (int row = 0; row < size; ++row) table[row].copy_(row_of(here, row, n));
      Case one{torch::full({n}, 0.7F), torch::full({n}, 0.7F), torch::zeros({size, n}), {}, {}};
      for (int rank = 0; rank < size; ++rank) {
        if (rank == 0 && !add)
          one.expected = row_of(0, here, n);
        else
          one.expected.add_(row_of(rank, here, n));
      }
      one.gathered[here].copy_(row_of(here, here, n));
      one.reduced = rows->reduce_scatter(table, one.own, add);
      group.barrier();
      one.shared = rows->all_gather(one.gathered);
      cases.push_back(std::move(one));
    }
  }
  bool right = true;
  for (auto& one : cases) {
    one.reduced.wait();
    one.shared.wait();
    right = right && torch::equal(one.own, one.expected);
    for (int rank = 0; rank < size; ++rank)
      right = right && torch::equal(one.gathered[rank], row_of(rank, rank, one.own.numel()));
  }
  return right;
}

}  // namespace ddp::train::test
