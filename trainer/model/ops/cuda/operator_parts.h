// What the files of operators share. Part of libtrainer_kernels.so.
#pragma once

#include <ATen/core/Tensor.h>
#include <cuda.h>
#include <torch/library.h>

#include <optional>

namespace ddp::train {

/// The kernel of this process's device; call once the kernels are loaded.
CUfunction own_kernel(const char* name);

void register_coded_operators(torch::Library& cuda);
void register_llama_operators(torch::Library& cuda);

/// Throws c10::Error unless `x` is contiguous, on a GPU, of the type, and has the rows of `like`.
inline void check_rows(const at::Tensor& x, at::ScalarType type, const at::Tensor& like) {
  TORCH_CHECK(x.is_cuda() && x.scalar_type() == type && x.is_contiguous() &&
                  x.numel() == like.numel() && x.size(-1) == like.size(-1),
              "expected contiguous rows of ", like.size(-1), " ", type, " on a GPU");
}

/// As check_rows(x, bfloat16, like), for kernels that take eight numbers at once.
inline void check_eights(const at::Tensor& x, const at::Tensor& like) {
  check_rows(x, at::kBFloat16, like);
  TORCH_CHECK(x.size(-1) % 8 == 0, "expected rows of a multiple of 8");
}

/// Throws c10::Error unless `x` is `columns` contiguous float32 on a GPU.
inline void check_columns(const at::Tensor& x, int64_t columns) {
  TORCH_CHECK(
      x.is_cuda() && x.scalar_type() == at::kFloat && x.is_contiguous() && x.numel() == columns,
      "expected ", columns, " float32 on a GPU");
}

/// The blocks of a kernel for `count` elements, `chunk` in each.
inline unsigned blocks_for(int64_t count, int64_t chunk) {
  return static_cast<unsigned>((count + chunk - 1) / chunk);
}

/// Null without a tensor.
inline const void* data_or_null(const std::optional<at::Tensor>& x) {
  return x && x->defined() ? x->const_data_ptr() : nullptr;
}

}  // namespace ddp::train
