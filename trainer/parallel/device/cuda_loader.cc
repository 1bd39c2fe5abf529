#include <dlfcn.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "launcher/worker_contract.h"
#include "trainer/parallel/device/cuda_module.h"
#include "trainer/runtime/files/module_path.h"

namespace ddp::train {
namespace {

constexpr const char* kCudaModuleFile = "libtrainer_cuda.so";

struct Loaded {
  CudaModule* module = nullptr;
  std::string why_not;
};

Loaded load_cuda() {
  const auto path = find_module(kCudaModuleFile);
  if (path.empty())
    return {nullptr,
            "this trainer was built without CUDA (no " + std::string(kCudaModuleFile) + ")"};
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    return {nullptr, std::string("cannot load the CUDA libraries: ") + ::dlerror()};
  const auto entry = reinterpret_cast<CudaModuleEntry>(::dlsym(library, kCudaModuleEntry));
  if (entry == nullptr) return {nullptr, path.string() + " is not trainer's CUDA module"};
  return {entry(), ""};
}

CudaModule* loaded = nullptr;

}  // namespace

CudaModule* load_cuda_module(std::string* why_not) {
  static const Loaded result = load_cuda();
  loaded = result.module;
  if (why_not != nullptr) *why_not = result.why_not;
  return result.module;
}

CudaModule* loaded_cuda_module() { return loaded; }

bool nvidia_device_visible() {
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    const std::string_view list = visible;
    if (list.empty() || list.substr(0, 2) == "-1") return false;
  }
  const char* elsewhere = std::getenv(launch::kDeviceRoot);
  const std::filesystem::path root = elsewhere != nullptr ? elsewhere : "/";
  std::error_code error;
  if (std::filesystem::exists(root / "dev/dxg", error)) return true;  // WSL
  for (const auto& entry : std::filesystem::directory_iterator(root / "dev", error)) {
    const std::string name = entry.path().filename();
    constexpr std::string_view kPrefix = "nvidia";
    if (name.size() > kPrefix.size() && name.compare(0, kPrefix.size(), kPrefix) == 0 &&
        std::isdigit(static_cast<unsigned char>(name[kPrefix.size()])) != 0) {
      return true;
    }
  }
  // A host that has just been started: CUDA itself makes the device files, by nvidia-modprobe.
  return std::filesystem::exists(root / "usr/bin/nvidia-modprobe", error) &&
         std::filesystem::exists(root / "proc/driver/nvidia/gpus", error);
}

}  // namespace ddp::train
