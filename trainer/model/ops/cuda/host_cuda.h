// The parts of CUDA C++ that kernels.cu, coded.cu and llama.cu use, for a host compiler: include
// this, then those in this order, in one file of a test or of the fake driver. A block's threads
// are threads of the host, so that missing synchronisation shows.
#pragma once

#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

// NOLINTBEGIN: names and spelling are CUDA's
#define __device__ inline
#define __global__ inline
#define __launch_bounds__(threads)
#define __align__(bytes) alignas(bytes)
#define DDP_SHARED(type, name) type* name = reinterpret_cast<type*>(::ddp::host_cuda::place.shared)

namespace ddp::host_cuda {

struct Index {
  unsigned x = 0;
};
struct Place {
  Index thread, block, block_size;
  void* shared = nullptr;
  double* exchange = nullptr;  // one for each thread of the block
  std::barrier<>* barrier = nullptr;
};
inline thread_local Place place;

/// Calls `kernel` for each block of the grid, one block after the other. `shared_bytes`: memory
/// that the threads of a block share.
inline void run(unsigned grid, unsigned block, std::size_t shared_bytes,
                const std::function<void()>& kernel) {
  std::vector<std::max_align_t> shared(shared_bytes / sizeof(std::max_align_t) + 1);
  std::vector<double> exchange(block);
  std::barrier<> barrier(block);
  const auto be_thread = [&](unsigned thread) {
    for (unsigned i = 0; i < grid; ++i) {
      place = {{thread}, {i}, {block}, shared.data(), exchange.data(), &barrier};
      kernel();
      barrier.arrive_and_wait();  // shared memory is the next block's now
    }
  };
  std::vector<std::thread> threads;
  for (unsigned thread = 1; thread < block; ++thread) threads.emplace_back(be_thread, thread);
  be_thread(0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ddp::host_cuda

#define threadIdx ::ddp::host_cuda::place.thread
#define blockIdx ::ddp::host_cuda::place.block
#define blockDim ::ddp::host_cuda::place.block_size

inline float __fmul_rn(float a, float b) { return a * b; }
/// All threads of the block must call it.
template <class Number>
Number __shfl_xor_sync(unsigned, Number own, int lanes) {
  static_assert(sizeof own <= sizeof(double));
  const auto& place = ::ddp::host_cuda::place;
  std::memcpy(&place.exchange[place.thread.x], &own, sizeof own);
  place.barrier->arrive_and_wait();
  std::memcpy(&own, &place.exchange[place.thread.x ^ static_cast<unsigned>(lanes)], sizeof own);
  place.barrier->arrive_and_wait();
  return own;
}
inline void __syncthreads() { ::ddp::host_cuda::place.barrier->arrive_and_wait(); }
inline float __uint_as_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline std::uint32_t __float_as_uint(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
// NOLINTEND
