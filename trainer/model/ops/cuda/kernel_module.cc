#include "trainer/model/ops/cuda/kernel_module.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/hash.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nvrtc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

/// torch's own library that is linked with NVRTC and the driver. On a machine without a driver,
/// NVRTC alone.
void* load_nvrtc() {
  void* library = ::dlopen("libcaffe2_nvrtc.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    library = ::dlopen(fmt::format("libnvrtc.so.{}", CUDA_VERSION / 1000).c_str(), RTLD_NOW);
  if (library == nullptr)
    throw std::runtime_error(fmt::format("cannot load NVRTC: {}", ::dlerror()));
  return library;
}

/// A function of NVRTC or of the driver.
template <class Function>
Function* named(const char* name) {
  static void* const library = load_nvrtc();
  void* const found = ::dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(fmt::format("{} is missing", name));
  return reinterpret_cast<Function*>(found);
}
#define DDP_OF_CUDA(function) named<decltype(function)>(#function)

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void check(nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS)
    throw std::runtime_error(fmt::format("{}: {}", what, DDP_OF_CUDA(nvrtcGetErrorString)(result)));
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* words = "";
  DDP_OF_CUDA(cuGetErrorString)(result, &words);
  throw std::runtime_error(fmt::format("{}: {}", what, words));
}

/// The driver works in the calling thread's context. The runtime sets it in its first call that
/// needs a device, which in this thread may be still to come: torch does not call cudaSetDevice for
/// the device that a thread has by default.
void make_context_current() {
  static auto* const get = DDP_OF_CUDA(cuCtxGetCurrent);
  CUcontext context = nullptr;
  check(get(&context), "the driver has no context");
  if (context == nullptr) c10::cuda::set_device(c10::cuda::current_device(), /*force=*/true);
}

struct Target {
  int arch;  ///< 90 for compute capability 9.0
  bool machine_code;

  std::string option() const {
    return fmt::format("--gpu-architecture={}_{}", machine_code ? "sm" : "compute", arch);
  }
};

Target target_for(int arch) {
  int count = 0;
  check(DDP_OF_CUDA(nvrtcGetNumSupportedArchs)(&count), "NVRTC");
  std::vector<int> known(static_cast<std::size_t>(count));
  check(DDP_OF_CUDA(nvrtcGetSupportedArchs)(known.data()), "NVRTC");
  const auto newer = std::upper_bound(known.begin(), known.end(), arch);
  if (newer == known.begin())
    throw std::runtime_error(
        fmt::format("NVRTC supports no compute capability as old as {}.{}", arch / 10, arch % 10));
  const int nearest = *std::prev(newer);
  return {nearest, nearest == arch};
}

class Program {
 public:
  explicit Program(std::string_view source) {
    const std::string text(source);
    check(
        DDP_OF_CUDA(nvrtcCreateProgram)(&program_, text.c_str(), "kernels.cu", 0, nullptr, nullptr),
        "NVRTC");
  }
  ~Program() { DDP_OF_CUDA(nvrtcDestroyProgram)(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::string compile(const Target& target) {
    const std::string architecture = target.option();
    const char* options[] = {architecture.c_str()};
    if (DDP_OF_CUDA(nvrtcCompileProgram)(program_, std::size(options), options) != NVRTC_SUCCESS)
      throw std::runtime_error("NVRTC cannot compile the kernels: " + one_line(log()));
    return target.machine_code ? text(DDP_OF_CUDA(nvrtcGetCUBINSize), DDP_OF_CUDA(nvrtcGetCUBIN))
                               : text(DDP_OF_CUDA(nvrtcGetPTXSize), DDP_OF_CUDA(nvrtcGetPTX));
  }

 private:
  template <class Size, class Get>
  std::string text(Size* size_of, Get* get) const {
    std::size_t size = 0;
    check(size_of(program_, &size), "NVRTC");
    std::string result(size, '\0');
    check(get(program_, result.data()), "NVRTC");
    return result;
  }
  std::string log() const {
    return text(DDP_OF_CUDA(nvrtcGetProgramLogSize), DDP_OF_CUDA(nvrtcGetProgramLog));
  }

  nvrtcProgram program_ = nullptr;
};

/// Everything that the result depends on.
std::string file_name(std::string_view source, int arch) {
  int major = 0;
  int minor = 0;
  check(DDP_OF_CUDA(nvrtcVersion)(&major, &minor), "NVRTC");
  c10::sha1 digest(fmt::format("{} {}.{}\n{}", arch, major, minor, source));
  return fmt::format("sm_{}-{}.bin", arch, digest.str());
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// By rename, since other ranks read it. A full or read-only disk only means that the next run
/// compiles again.
void leave(const fs::path& path, const std::string& image) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  ::chmod(path.parent_path().c_str(), S_IRWXU);  // machine code that this user will run
  const fs::path temporary = path.string() + fmt::format(".tmp.{}", ::getpid());
  std::ofstream file(temporary, std::ios::binary);
  file << image;
  file.close();
  if (file.good()) {
    fs::rename(temporary, path, error);
  } else {
    fs::remove(temporary, error);
  }
}

}  // namespace

std::string compile_kernels(std::string_view source, int major, int minor) {
  return Program(source).compile(target_for(10 * major + minor));
}

KernelModule::KernelModule(const std::string& image) {
  make_context_current();
  check(DDP_OF_CUDA(cuModuleLoadData)(&module_, image.c_str()),
        "the driver cannot load the kernels");
}

CUfunction KernelModule::function(const char* name) const {
  make_context_current();
  CUfunction result = nullptr;
  check(DDP_OF_CUDA(cuModuleGetFunction)(&result, module_, name), name);
  return result;
}

KernelModule load_module(std::string_view source, int major, int minor, const std::string& folder) {
  const fs::path path =
      folder.empty() ? fs::path() : fs::path(folder) / file_name(source, 10 * major + minor);
  if (const std::string image = path.empty() ? "" : read(path); !image.empty()) {
    try {
      return KernelModule(image);
    } catch (const std::runtime_error&) {
      // Damaged, or by a newer NVRTC than this driver takes.
    }
  }
  const std::string image = compile_kernels(source, major, minor);
  KernelModule module(image);
  if (!path.empty()) leave(path, image);
  return module;
}

void launch_with(CUfunction function, unsigned grid, unsigned block, unsigned shared_bytes,
                 std::vector<void*> arguments) {
  static auto* const start = DDP_OF_CUDA(cuLaunchKernel);
  make_context_current();
  check(start(function, grid, 1, 1, block, 1, 1, shared_bytes,
              c10::cuda::getCurrentCUDAStream().stream(), arguments.data(), nullptr),
        "a kernel cannot be started");
}

}  // namespace ddp::train
