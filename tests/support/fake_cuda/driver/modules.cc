// Modules of the fake driver, which all have the same functions: trainer's own kernels.
#include <cuda.h>

#include <cstring>
#include <functional>
#include <string>

#include "tests/support/fake_cuda/driver/host_kernels.h"
#include "tests/support/fake_cuda/fake_cuda.h"

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  static char loaded;
  if (fakecuda_thread_has_context() == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (std::strcmp(static_cast<const char*>(image), FAKE_CUDA_IMAGE) != 0)
    return CUDA_ERROR_INVALID_IMAGE;
  *module = reinterpret_cast<CUmodule>(&loaded);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  const auto* kernel = fake_cuda::find_host_kernel(name);
  *function = reinterpret_cast<CUfunction>(const_cast<fake_cuda::HostKernel*>(kernel));
  return kernel != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuLaunchKernel(CUfunction function, unsigned grid, unsigned, unsigned, unsigned, unsigned,
                        unsigned, unsigned shared_bytes, CUstream stream, void** arguments,
                        void**) {
  if (fakecuda_thread_has_context() == 0) return CUDA_ERROR_INVALID_CONTEXT;
  const auto* kernel = reinterpret_cast<const fake_cuda::HostKernel*>(function);
  fakecuda_count((std::string("op:") + kernel->name).c_str(), kernel->bytes(grid, arguments));
  std::function<void()> work;
  if (fakecuda_computes() != 0) work = kernel->work(grid, shared_bytes, arguments);
  fakecuda_launch(stream, kernel->name, &work);
  return CUDA_SUCCESS;
}
}
