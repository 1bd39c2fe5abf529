// trainer's own kernels, as the host's compiler makes them of the same source.
#pragma once

#include <cstdint>
#include <functional>

namespace fake_cuda {

struct HostKernel {
  const char* name;
  /// The kernel on a grid of blocks of one thread: the same results as of larger ones, in less
  /// time. The arguments, passed by address, are copied at once.
  std::function<void()> (*work)(unsigned grid, unsigned shared_bytes, void** arguments);
  /// Bytes of device memory read and written, for the account.
  uint64_t (*bytes)(unsigned grid, void** arguments);
};

/// Null where there is none of that name.
const HostKernel* find_host_kernel(const char* name);

}  // namespace fake_cuda
