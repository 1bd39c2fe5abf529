// CUDA's two kinds of error state: the calling thread's last error, and the device's sticky one.
#pragma once

#include <cuda_runtime_api.h>

namespace fake_cuda {

/// Records `error` as the calling thread's last error and returns it.
cudaError_t failed(cudaError_t error);

/// The device failed: from now on every call returns `error`, from any thread.
void set_sticky(cudaError_t error);

/// The sticky error, recorded as the calling thread's last one, or cudaSuccess.
cudaError_t sticky();

/// What cudaGetLastError() returns: the last error, which it forgets unless it is sticky.
cudaError_t take_last_error();
cudaError_t last_error();

}  // namespace fake_cuda

/// Leaves a function that returns cudaError_t when the device has failed.
#define FAKE_CUDA_RETURN_IF_STICKY()                                                             \
  do {                                                                                           \
    if (const cudaError_t sticky_ = fake_cuda::sticky(); sticky_ != cudaSuccess) return sticky_; \
  } while (false)
