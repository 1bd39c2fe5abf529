#define DDP_KERNELS kGenericKernels
#define DDP_INSTRUCTIONS "generic"
#define DDP_WIDTH 4
#include "trainer/model/ops/cpu/kernels.inc"
