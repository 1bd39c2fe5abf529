#include "tests/support/fake_cuda/driver/host_kernels.h"

#include <cstring>
#include <tuple>
#include <utility>

#include "trainer/model/ops/cuda/host_cuda.h"

#include "trainer/model/ops/cuda/kernels.cu"

#include "trainer/model/ops/cuda/coded.cu"
#include "trainer/model/ops/cuda/llama.cu"

namespace fake_cuda {
namespace {

template <class... Arguments>
std::tuple<Arguments...> values_of(void** arguments, void (*)(Arguments...)) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::tuple<Arguments...>{*static_cast<Arguments*>(arguments[I])...};
  }
  (std::index_sequence_for<Arguments...>{});
}

template <auto Kernel>
std::function<void()> work_of(unsigned grid, unsigned shared_bytes, void** arguments) {
  return [grid, shared_bytes, values = values_of(arguments, Kernel)] {
    ddp::host_cuda::run(grid, 1, shared_bytes, [&values] { std::apply(Kernel, values); });
  };
}

uint64_t number(void** arguments, int index) {
  return static_cast<uint64_t>(*static_cast<long long*>(arguments[index]));
}
bool is_given(void** arguments, int index) {
  return *static_cast<void**>(arguments[index]) != nullptr;
}

uint64_t cross_entropy_bytes(unsigned grid, void** arguments) {
  constexpr uint64_t kTargetAndLoss = 12;
  return grid * (2 * number(arguments, 4) * sizeof(bfloat16) + kTargetAndLoss);
}

constexpr uint64_t kFloat = sizeof(float);
constexpr uint64_t kHalf = sizeof(bfloat16);
constexpr uint64_t kStatistics = 2 * kFloat;

uint64_t add_norm_bytes(unsigned grid, void** arguments) {
  const uint64_t columns = number(arguments, 7);
  const uint64_t branch_and_sum = is_given(arguments, 1) ? kHalf + kFloat : 0;
  return grid * (columns * (kFloat + kHalf + branch_and_sum) + kStatistics) + 2 * columns * kFloat;
}

uint64_t add_norm_backward_bytes(unsigned grid, void** arguments) {
  const uint64_t columns = number(arguments, 9);
  const uint64_t each = kHalf + 2 * kFloat + (is_given(arguments, 1) ? kFloat : 0) +
                        (is_given(arguments, 6) ? kHalf : 0);
  const uint64_t parts = *static_cast<int*>(arguments[11]) != 0 ? 2 : 1;
  return number(arguments, 8) * (columns * each + kStatistics) +
         (grid * parts + 1) * columns * kFloat;
}

uint64_t gelu_bytes(unsigned, void** arguments) { return number(arguments, 2) * 2 * kHalf; }

uint64_t gelu_backward_bytes(unsigned grid, void** arguments) {
  return number(arguments, 4) * number(arguments, 5) * 3 * kHalf +
         grid * number(arguments, 7) * kFloat;
}

uint64_t column_sums_bytes(unsigned grid, void** arguments) {
  return number(arguments, 2) * number(arguments, 3) * kHalf + grid * number(arguments, 5) * kFloat;
}

uint64_t join_thirds_bytes(unsigned grid, void** arguments) {
  return number(arguments, 5) * number(arguments, 6) * 2 * kHalf +
         grid * number(arguments, 8) * kFloat;
}

uint64_t sums_of_squares_bytes(unsigned, void** arguments) {
  const auto& tensors = *static_cast<SquaredTensors*>(arguments[0]);
  const int count = *static_cast<int*>(arguments[2]);
  uint64_t bytes = tensors.first_block[count] * sizeof(double);
  for (int i = 0; i < count; ++i) bytes += static_cast<uint64_t>(tensors.of[i].size) * kFloat;
  return bytes;
}

uint64_t adam_bytes(unsigned, void** arguments) {
  constexpr uint64_t kReadAndWritten = 7 * kFloat;  // the gradient is only read
  uint64_t bytes = 0;
  for (const auto& tensor : static_cast<AdamTensors*>(arguments[0])->of)
    bytes += static_cast<uint64_t>(tensor.size) *
             (kReadAndWritten + (tensor.copy != nullptr ? kHalf : 0));
  return bytes;
}

/// For `count` numbers: their codes, and absmax with its scales.
uint64_t coded_bytes(const Coded& weight, uint64_t count) {
  if (weight.four_bits == 0) return count + count / static_cast<uint64_t>(weight.columns) * kFloat;
  const uint64_t blocks = count / 64;
  return count / 2 + (weight.absmax_scales != nullptr ? blocks + blocks / 64 : blocks * kFloat);
}

uint64_t dequantize_bytes(unsigned, void** arguments) {
  const uint64_t count = number(arguments, 2);
  return coded_bytes(*static_cast<Coded*>(arguments[0]), count) +
         count * (*static_cast<int*>(arguments[4]) == 0 ? kFloat : kHalf);
}

uint64_t coded_product_bytes(unsigned, void** arguments) {
  const auto& weight = *static_cast<Coded*>(arguments[0]);
  const auto at = [&](int index) {
    return static_cast<uint64_t>(*static_cast<int*>(arguments[index]));
  };
  const uint64_t columns = static_cast<uint64_t>(weight.columns), rows = at(4);
  return coded_bytes(weight, rows * columns) +
         at(3) * (rows + columns) * (at(5) != 0 ? kHalf : kFloat);
}

uint64_t swiglu_bytes(unsigned, void** arguments) { return number(arguments, 3) * 3 * kHalf; }

uint64_t swiglu_backward_bytes(unsigned, void** arguments) {
  return number(arguments, 5) * 5 * kHalf;
}

uint64_t rotate_bytes(unsigned, void** arguments) {
  const uint64_t dim = number(arguments, 9);
  return number(arguments, 6) * (number(arguments, 7) + number(arguments, 8)) * dim * 2 * kHalf +
         number(arguments, 10) * dim * kFloat;
}

constexpr HostKernel kKernels[] = {
    {"ddp_dequantize", work_of<ddp_dequantize>, dequantize_bytes},
    {"ddp_coded_product", work_of<ddp_coded_product>, coded_product_bytes},
    {"ddp_swiglu", work_of<ddp_swiglu>, swiglu_bytes},
    {"ddp_swiglu_backward", work_of<ddp_swiglu_backward>, swiglu_backward_bytes},
    {"ddp_rotate", work_of<ddp_rotate>, rotate_bytes},
    {"ddp_cross_entropy", work_of<ddp_cross_entropy>, cross_entropy_bytes},
    {"ddp_add_norm", work_of<ddp_add_norm>, add_norm_bytes},
    {"ddp_add_norm_backward", work_of<ddp_add_norm_backward>, add_norm_backward_bytes},
    {"ddp_gelu", work_of<ddp_gelu>, gelu_bytes},
    {"ddp_gelu_backward", work_of<ddp_gelu_backward>, gelu_backward_bytes},
    {"ddp_column_sums", work_of<ddp_column_sums>, column_sums_bytes},
    {"ddp_join_thirds", work_of<ddp_join_thirds>, join_thirds_bytes},
    {"ddp_sums_of_squares", work_of<ddp_sums_of_squares>, sums_of_squares_bytes},
    {"ddp_adam", work_of<ddp_adam>, adam_bytes},
};

}  // namespace

const HostKernel* find_host_kernel(const char* name) {
  for (const HostKernel& kernel : kKernels) {
    if (std::strcmp(kernel.name, name) == 0) return &kernel;
  }
  return nullptr;
}

}  // namespace fake_cuda
