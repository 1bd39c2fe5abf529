// Copies and fills, with CUDA's rules about who waits: pageable memory makes the host wait.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/fake_cuda/runtime/errors.h"
#include "tests/support/fake_cuda/runtime/ledger.h"
#include "tests/support/fake_cuda/runtime/memory.h"
#include "tests/support/fake_cuda/runtime/streams.h"

namespace {

using fake_cuda::Block;
using fake_cuda::MemoryKind;

enum class Way { kHostToDevice, kDeviceToHost, kDeviceToDevice, kHostToHost };

const char* name_of(Way way) {
  switch (way) {
    case Way::kHostToDevice:
      return "h2d";
    case Way::kDeviceToHost:
      return "d2h";
    case Way::kDeviceToDevice:
      return "d2d";
    case Way::kHostToHost:
      return "h2h";
  }
  return "";
}

struct Copy {
  Block from;
  Block to;

  Way way() const {
    if (from.on_device()) return to.on_device() ? Way::kDeviceToDevice : Way::kDeviceToHost;
    return to.on_device() ? Way::kHostToDevice : Way::kHostToHost;
  }
  bool pageable() const {
    return from.kind == MemoryKind::kUnknown || to.kind == MemoryKind::kUnknown;
  }
  bool is(cudaMemcpyKind kind) const {
    switch (kind) {
      case cudaMemcpyHostToDevice:
        return way() == Way::kHostToDevice;
      case cudaMemcpyDeviceToHost:
        return way() == Way::kDeviceToHost;
      case cudaMemcpyDeviceToDevice:
        return way() == Way::kDeviceToDevice;
      case cudaMemcpyHostToHost:
        return way() == Way::kHostToHost;
      case cudaMemcpyDefault:
        return true;
    }
    return false;
  }
};

cudaError_t invalid(const std::string& why) {
  std::fprintf(stderr, "fake CUDA: memcpy: %s\n", why.c_str());
  return fake_cuda::failed(cudaErrorInvalidValue);
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream, bool async) {
  FAKE_CUDA_RETURN_IF_STICKY();
  if (bytes == 0) return cudaSuccess;
  const Copy ends{fake_cuda::find_block(from), fake_cuda::find_block(to)};
  if (!ends.is(kind)) return invalid(std::string("the pointers are ") + name_of(ends.way()));
  if (ends.from.kind != MemoryKind::kUnknown && !ends.from.holds(from, bytes))
    return invalid("reads past an allocation");
  if (ends.to.kind != MemoryKind::kUnknown && !ends.to.holds(to, bytes))
    return invalid("writes past an allocation");
  if (ends.pageable() && fake_cuda::stream_of(stream).capture != nullptr)
    return fake_cuda::failed(cudaErrorStreamCaptureUnsupported);
  fake_cuda::count(std::string("copy:") + name_of(ends.way()), bytes);
  if (ends.pageable()) fake_cuda::count("copy:pageable", bytes);
  fake_cuda::trace("copy %s %zu%s", name_of(ends.way()), bytes, ends.pageable() ? " pageable" : "");
  if (async && ends.way() == Way::kHostToDevice && ends.pageable()) {
    // Staged: the source may change once the call has returned.
    const auto* begin = static_cast<const char*>(from);
    auto staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
    fake_cuda::submit(stream, [to, staged] { std::memcpy(to, staged->data(), staged->size()); });
    return cudaSuccess;
  }
  fake_cuda::submit(stream, [to, from, bytes] { std::memmove(to, from, bytes); });
  const bool host_waits = async ? ends.way() == Way::kDeviceToHost && ends.pageable()
                                : ends.way() != Way::kDeviceToDevice;
  if (host_waits && fake_cuda::stream_of(stream).capture == nullptr) {
    fake_cuda::count_host_sync(async ? "pageable cudaMemcpyAsync" : "cudaMemcpy");
    fake_cuda::stream_of(stream).now().wait();
  }
  return fake_cuda::sticky();
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, bytes, kind, nullptr, false);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy(to, from, bytes, kind, stream, true);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                cudaStream_t stream) {
  return copy(to, from, bytes, cudaMemcpyDefault, stream, true);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind, cudaStream_t stream) {
  fake_cuda::count("copy:2d", width * height);
  fake_cuda::submit(stream, [=] {
    for (std::size_t row = 0; row < height; ++row)
      std::memcpy(static_cast<char*>(to) + row * to_pitch,
                  static_cast<const char*>(from) + row * from_pitch, width);
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  FAKE_CUDA_RETURN_IF_STICKY();
  fake_cuda::count("memset", bytes);
  fake_cuda::submit(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
}
