#include "tests/support/fake_cuda/driver/host_kernels.h"

#include <cstring>
#include <tuple>
#include <utility>

#include "trainer/model/cuda/host_cuda.h"

#include "trainer/model/cuda/kernels.cu"

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
std::function<void()> work_of(unsigned grid, void** arguments) {
  return [grid, values = values_of(arguments, Kernel)] {
    ddp::host_cuda::run(grid, 1, [&values] { std::apply(Kernel, values); });
  };
}

uint64_t cross_entropy_bytes(unsigned grid, void** arguments) {
  constexpr uint64_t kTargetAndLoss = 12;
  const auto stride = static_cast<uint64_t>(*static_cast<long long*>(arguments[4]));
  return grid * (2 * stride * sizeof(bfloat16) + kTargetAndLoss);
}

constexpr HostKernel kKernels[] = {
    {"ddp_cross_entropy", work_of<ddp_cross_entropy>, cross_entropy_bytes},
};

}  // namespace

const HostKernel* find_host_kernel(const char* name) {
  for (const HostKernel& kernel : kKernels) {
    if (std::strcmp(kernel.name, name) == 0) return &kernel;
  }
  return nullptr;
}

}  // namespace fake_cuda
