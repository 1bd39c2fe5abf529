// The products of cuBLAS: launches that compute nothing. Without cublas.h: only the handle, each
// function's first argument, is read, so none of the long signatures has to be repeated.
#include "tests/support/fake_cuda/fake_cuda.h"

#define PRODUCT(name)                                   \
  extern "C" int name(const cudaStream_t* handle) {     \
    fakecuda_launch(*handle, "cublas:" #name, nullptr); \
    return 0;                                           \
  }

PRODUCT(cublasGemmEx)
PRODUCT(cublasGemmStridedBatchedEx)
PRODUCT(cublasSgemmEx)
PRODUCT(cublasSgemm_v2)
PRODUCT(cublasDgemm_v2)
PRODUCT(cublasSgemmStridedBatched)
PRODUCT(cublasDgemmStridedBatched)
PRODUCT(cublasSgemmBatched)
PRODUCT(cublasDgemmBatched)
PRODUCT(cublasSgemv_v2)
PRODUCT(cublasDgemv_v2)
PRODUCT(cublasSdot_v2)
PRODUCT(cublasDdot_v2)
PRODUCT(cublasDotEx)
