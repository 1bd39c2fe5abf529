// Divides the rows of a matrix among threads for operations on a CPU.
#pragma once

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>

#include "trainer/model/ops/cpu/kernels.h"
#include "trainer/runtime/parallel_for.h"

namespace ddp::train::fused {

/// Rows that one thread works on at a time. Sums over all rows are sums of the blocks' in their
/// order, whatever the number of threads.
inline constexpr int64_t kBlockRows = 128;

inline int64_t rows_of(const torch::Tensor& x) { return x.numel() / x.size(-1); }
inline int64_t blocks_of(const torch::Tensor& x) {
  return (rows_of(x) + kBlockRows - 1) / kBlockRows;
}

/// work(rows, block) for blocks of x's rows.
template <typename Work>
void by_blocks(const torch::Tensor& x, const Work& work) {
  const int64_t rows = rows_of(x);
  parallel_for(blocks_of(x), 1, at::get_num_threads(), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlockRows;
      work(cpu::Rows{first, std::min(rows, first + kBlockRows), x.size(-1)}, block);
    }
  });
}

/// Null for an undefined tensor.
inline const float* values_of(const torch::Tensor& x) {
  return x.defined() ? x.const_data_ptr<float>() : nullptr;
}
/// To be written.
inline float* values_in(const torch::Tensor& x) { return x.mutable_data_ptr<float>(); }

/// A row for each block of x.
inline torch::Tensor sums_for(const torch::Tensor& x) {
  return torch::empty({blocks_of(x), x.size(-1)}, x.options());
}

inline float* row_of(const torch::Tensor& sums, int64_t block) {
  return values_in(sums) + block * sums.size(1);
}

}  // namespace ddp::train::fused
