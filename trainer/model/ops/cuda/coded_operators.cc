// Operators on frozen weights in 4 or 8 bits, by the kernels of coded.cu.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "trainer/model/ops/cuda/kernel_module.h"
#include "trainer/model/ops/cuda/operator_parts.h"

namespace ddp::train {
namespace {

// As in coded.cu.
struct Coded {
  const void* codes;
  const void* absmax;
  const void* absmax_scales;
  const void* absmax_mean;
  int64_t first_block;
  int columns;
  int four_bits;
  float tables[16 + 256];
};

/// A matrix as QuantizedWeight has it; `tables`: the values of NF4's codes, then of absmax's.
struct Matrix {
  const at::Tensor &codes, &absmax;
  const std::optional<at::Tensor>&absmax_scales, &absmax_mean;
  at::ArrayRef<double> tables;

  bool is_nf4() const { return codes.scalar_type() == at::kByte; }
  int64_t columns() const { return codes.size(1) * (is_nf4() ? 2 : 1); }
};

/// The parameter of the kernels for rows from `first` on, checked.
Coded coded_rows(const Matrix& matrix, int64_t first) {
  const int64_t columns = matrix.columns();
  const int64_t blocks_of_row = matrix.is_nf4() ? columns / 64 : 1;
  TORCH_CHECK(matrix.codes.is_cuda() && matrix.codes.dim() == 2 && matrix.codes.is_contiguous() &&
                  columns % (matrix.is_nf4() ? 64 : 8) == 0,
              "codes must be contiguous rows of a multiple of 8 numbers, of 64 with NF4");
  TORCH_CHECK(matrix.absmax.is_contiguous() &&
                  matrix.absmax.numel() == matrix.codes.size(0) * blocks_of_row &&
                  matrix.absmax.scalar_type() == (matrix.absmax_scales ? at::kByte : at::kFloat),
              "absmax must have one number for each block");
  Coded coded{
      static_cast<const uint8_t*>(matrix.codes.const_data_ptr()) + first * matrix.codes.size(1),
      matrix.absmax.const_data_ptr(),
      data_or_null(matrix.absmax_scales),
      data_or_null(matrix.absmax_mean),
      first * blocks_of_row,
      static_cast<int>(columns),
      matrix.is_nf4() ? 1 : 0,
      {}};
  TORCH_CHECK(matrix.tables.size() == std::size(coded.tables), "expected both tables");
  std::transform(matrix.tables.begin(), matrix.tables.end(), coded.tables,
                 [](double x) { return static_cast<float>(x); });
  return coded;
}

constexpr unsigned kShared = 16 * sizeof(float);

at::Tensor dequantize(const at::Tensor& codes, const at::Tensor& absmax,
                      const std::optional<at::Tensor>& absmax_scales,
                      const std::optional<at::Tensor>& absmax_mean, at::ArrayRef<double> tables,
                      int64_t first, int64_t last, at::ScalarType type) {
  const Matrix matrix{codes, absmax, absmax_scales, absmax_mean, tables};
  TORCH_CHECK(0 <= first && first <= last && last <= codes.size(0), "no such rows");
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf,
              "expected float32, bfloat16 or float16");
  const c10::DeviceGuard device(codes.device());
  auto rows = at::empty({last - first, matrix.columns()}, codes.options().dtype(type));
  if (rows.numel() == 0) return rows;
  constexpr int64_t kChunk = 8192;
  const int kind = type == at::kFloat ? 0 : type == at::kBFloat16 ? 1 : 2;
  static const CUfunction kernel = own_kernel("ddp_dequantize");
  launch(kernel, blocks_for(rows.numel(), kChunk), 256, kShared, coded_rows(matrix, first),
         rows.data_ptr(), rows.numel(), kChunk, kind);
  return rows;
}

at::Tensor coded_product(const at::Tensor& x, const at::Tensor& codes, const at::Tensor& absmax,
                         const std::optional<at::Tensor>& absmax_scales,
                         const std::optional<at::Tensor>& absmax_mean,
                         at::ArrayRef<double> tables) {
  const Matrix matrix{codes, absmax, absmax_scales, absmax_mean, tables};
  check_rows(x, x.scalar_type() == at::kFloat ? at::kFloat : at::kBFloat16, x);
  TORCH_CHECK(x.size(-1) == matrix.columns() && x.numel() <= 4 * x.size(-1),
              "expected at most 4 rows of ", matrix.columns());
  const c10::DeviceGuard device(x.device());
  auto shape = x.sizes().vec();
  shape.back() = codes.size(0);
  auto y = at::empty(shape, x.options());
  if (y.numel() == 0) return y;
  constexpr int64_t kRowsOfBlock = 8;
  static const CUfunction kernel = own_kernel("ddp_coded_product");
  launch(kernel, blocks_for(codes.size(0), kRowsOfBlock), 256, kShared, coded_rows(matrix, 0),
         x.const_data_ptr(), y.data_ptr(), static_cast<int>(x.numel() / x.size(-1)),
         static_cast<int>(codes.size(0)), x.scalar_type() == at::kBFloat16 ? 1 : 0);
  return y;
}

}  // namespace

void register_coded_operators(torch::Library& cuda) {
  cuda.impl("dequantize", dequantize);
  cuda.impl("coded_product", coded_product);
}

}  // namespace ddp::train

TORCH_LIBRARY_FRAGMENT(ddp_run, library) {
  library.def(
      "dequantize(Tensor codes, Tensor absmax, Tensor? absmax_scales, Tensor? absmax_mean, "
      "float[] tables, int first, int last, ScalarType type) -> Tensor");
  library.def(
      "coded_product(Tensor x, Tensor codes, Tensor absmax, Tensor? absmax_scales, "
      "Tensor? absmax_mean, float[] tables) -> Tensor");
}
