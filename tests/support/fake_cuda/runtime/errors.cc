#include "tests/support/fake_cuda/runtime/errors.h"

#include <atomic>
#include <utility>

namespace fake_cuda {
namespace {

thread_local cudaError_t last = cudaSuccess;
std::atomic<cudaError_t> device_error{cudaSuccess};

}  // namespace

cudaError_t failed(cudaError_t error) {
  last = error;
  return error;
}

void set_sticky(cudaError_t error) { device_error = error; }

cudaError_t sticky() {
  const cudaError_t error = device_error;
  return error == cudaSuccess ? cudaSuccess : failed(error);
}

cudaError_t take_last_error() {
  return device_error == cudaSuccess ? std::exchange(last, cudaSuccess) : last;
}

cudaError_t last_error() { return last; }

}  // namespace fake_cuda

extern "C" {

cudaError_t cudaGetLastError() { return fake_cuda::take_last_error(); }
cudaError_t cudaPeekAtLastError() { return fake_cuda::last_error(); }

const char* cudaGetErrorName(cudaError_t error) {
  switch (static_cast<int>(error)) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    default:
      return "cudaErrorUnknown";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (static_cast<int>(error)) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing blocking stream";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorInvalidDeviceFunction:
      return "invalid device function";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    default:
      return cudaGetErrorName(error);
  }
}
}
