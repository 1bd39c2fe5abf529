#define DDP_KERNELS kAvx2Kernels
#define DDP_INSTRUCTIONS "avx2"
#define DDP_WIDTH 8
#include "trainer/model/ops/cpu/kernels.inc"
