#include "trainer/model/gpu_kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <filesystem>

#include "trainer/model/cuda/operators.h"
#include "trainer/runtime/files/module_path.h"

namespace ddp::train::gpu {
namespace {

constexpr const char* kFile = "libtrainer_kernels.so";

/// "" where there is no home: nothing is kept then.
std::string cache_folder() {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::filesystem::path(text == nullptr ? "" : text);
  };
  if (const auto cache = value("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "ddp_run";
  if (const auto home = value("HOME"); home.is_absolute()) return home / ".cache" / "ddp_run";
  return "";
}

/// The operator of that name, where the GPU's kernel is registered.
std::optional<c10::OperatorHandle> loaded_operator(const char* name) {
  auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  if (found && !found->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) found.reset();
  return found;
}

const std::optional<c10::OperatorHandle>& cross_entropy_operator() {
  static const auto found = loaded_operator("ddp_run::cross_entropy_");
  return found;
}

}  // namespace

std::string load_kernels() {
  const auto path = find_module(kFile);
  if (path.empty()) return std::string("this trainer was built without ") + kFile;
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return ::dlerror();
  const auto load = reinterpret_cast<LoadOperators>(::dlsym(library, kLoadOperators));
  if (load == nullptr) return path.string() + " has no operators";
  return load(cache_folder());
}

bool takes_rows_of(int64_t columns) {
  constexpr int64_t kMultiple = 8;
  return columns % kMultiple == 0 && cross_entropy_operator().has_value();
}

bool takes_cross_entropy(const torch::Tensor& logits) {
  return logits.is_cuda() && logits.scalar_type() == torch::kBFloat16 && logits.dim() == 2 &&
         logits.is_contiguous() && takes_rows_of(logits.size(1));
}

torch::Tensor cross_entropy_(torch::Tensor& logits, const torch::Tensor& targets, int64_t classes) {
  return cross_entropy_operator()
      ->typed<torch::Tensor(torch::Tensor&, const torch::Tensor&, int64_t)>()
      .call(logits, targets, classes);
}

}  // namespace ddp::train::gpu
