#include "trainer/model/ops/cpu/kernels.h"

namespace ddp::train::cpu {

extern const Kernels kGenericKernels;
#ifdef DDP_X86_KERNELS
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

KernelList all_kernels() {
  KernelList result;
  const auto add = [&](const Kernels& kernels) { result.kernels[result.count++] = &kernels; };
  add(kGenericKernels);
#ifdef DDP_X86_KERNELS
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) add(kAvx2Kernels);
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512bw") != 0)
    add(kAvx512Kernels);
#endif
  return result;
}

const Kernels& kernels() {
  static const Kernels& best = **(all_kernels().end() - 1);
  return best;
}

}  // namespace ddp::train::cpu
