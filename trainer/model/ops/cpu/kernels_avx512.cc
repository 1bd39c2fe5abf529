#define DDP_KERNELS kAvx512Kernels
#define DDP_INSTRUCTIONS "avx512"
#define DDP_WIDTH 16
#include "trainer/model/ops/cpu/kernels.inc"
