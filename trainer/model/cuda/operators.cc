#include "trainer/model/cuda/operators.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <exception>
#include <memory>
#include <string_view>

#include "trainer/model/cuda/kernel_module.h"

namespace ddp::train {

extern const std::string_view kKernelSource;

namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kSharedOfThread = 8;  // Exponentials

struct Kernels {
  explicit Kernels(const KernelModule& module)
      : cross_entropy(module.function("ddp_cross_entropy")) {}
  CUfunction cross_entropy;
};

/// Of the device of this process; each rank has one.
std::unique_ptr<const Kernels> kernels;

at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& targets, int64_t classes) {
  TORCH_CHECK(targets.dim() == 1 && targets.size(0) == logits.size(0) && targets.is_cuda() &&
                  targets.scalar_type() == at::kLong && targets.is_contiguous(),
              "targets must be int64, one for each row of the logits");
  const c10::DeviceGuard device(logits.device());
  auto losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  if (logits.size(0) == 0) return losses;
  void* row = logits.data_ptr();
  const void* target = targets.const_data_ptr();
  void* loss = losses.data_ptr();
  int64_t stride = logits.size(1);
  launch(kernels->cross_entropy, static_cast<unsigned>(logits.size(0)), kThreads,
         kThreads * kSharedOfThread, {&row, &target, &loss, &classes, &stride});
  return losses;
}

void register_operators() {
  static torch::Library cuda(torch::Library::IMPL, "ddp_run", c10::DispatchKey::CUDA, __FILE__,
                             __LINE__);
  cuda.impl("cross_entropy_", cross_entropy_);
}

}  // namespace
}  // namespace ddp::train

TORCH_LIBRARY(ddp_run, library) {
  library.def("cross_entropy_(Tensor(a!) logits, Tensor targets, int classes) -> Tensor");
}

extern "C" __attribute__((visibility("default"))) std::string ddp_trainer_load_operators(
    const std::string& folder) {
  using namespace ddp::train;
  try {
    const cudaDeviceProp* device = at::cuda::getCurrentDeviceProperties();
    at::globalContext().lazyInitDevice(c10::kCUDA);
    kernels = std::make_unique<const Kernels>(
        KernelModule(compiled_kernels(kKernelSource, device->major, device->minor, folder)));
    register_operators();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}
