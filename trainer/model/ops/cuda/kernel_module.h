// The kernels of kernels.cu, compiled for the current device by the NVRTC that comes with torch, so
// that no CUDA toolkit is needed. Part of libtrainer_kernels.so.
#pragma once

#include <cuda.h>

#include <string>
#include <string_view>
#include <vector>

namespace ddp::train {

/// Compiles `source` for a device of compute capability `major`.`minor`, such as 9.0: machine code,
/// or PTX for a device that is newer than this NVRTC. Needs no device. Throws std::runtime_error
/// with NVRTC's words, one line.
std::string compile_kernels(std::string_view source, int major, int minor);

/// Functions of one device, loaded; lives as long as the process.
class KernelModule {
 public:
  /// Throws std::runtime_error with the driver's words, one line.
  explicit KernelModule(const std::string& image);
  CUfunction function(const char* name) const;

 private:
  CUmodule module_ = nullptr;
};

/// `source`, compiled and loaded. A file in `folder` keeps the compiled kernels for later runs; one
/// that the driver rejects is compiled again. An empty `folder`: no file. Throws std::runtime_error
/// with the words of NVRTC or of the driver, one line.
KernelModule load_module(std::string_view source, int major, int minor, const std::string& folder);

/// Starts `function` on the current stream. `arguments`: pointers to the values.
void launch_with(CUfunction function, unsigned grid, unsigned block, unsigned shared_bytes,
                 std::vector<void*> arguments);

/// The values must have the types of the kernel's parameters.
template <class... Values>
void launch(CUfunction function, unsigned grid, unsigned block, unsigned shared_bytes,
            Values... values) {
  launch_with(function, grid, block, shared_bytes, {static_cast<void*>(&values)...});
}

}  // namespace ddp::train
