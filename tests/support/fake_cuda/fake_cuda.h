// What the fake libraries share. Everything here lives in the fake libcudart.so.13, which the
// others are linked with.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

/// What the fake NVRTC compiles everything to.
#define FAKE_CUDA_IMAGE "fake kernels"

extern "C" {

/// Queues `work` on the stream's worker thread, in order with the stream's other work. Takes the
/// function's contents.
void fakecuda_enqueue(cudaStream_t stream, std::function<void()>* work);

/// Counts one kernel launch under `name`, and queues `work` if it is not null.
void fakecuda_launch(cudaStream_t stream, const char* name, std::function<void()>* work);

/// Blocks the host until the stream has done everything queued so far; counted as a host
/// synchronization at the caller's site.
void fakecuda_wait(cudaStream_t stream, const char* why);

/// Adds one call of `bytes` to the ledger's counter `name`, for example "nccl:all_reduce".
void fakecuda_count(const char* name, uint64_t bytes);

/// Not 0 when this process has a context on the device.
int fakecuda_has_context(int device);

/// Not 0 when the calling thread has used the runtime, which made a context its own.
int fakecuda_thread_has_context();

/// Counts `bytes` of memory against a device. Returns 0 if it has not that many left, or if the
/// faults ask for it.
int fakecuda_take_memory(int device, uint64_t bytes);
void fakecuda_give_memory_back(int device, uint64_t bytes);

/// Makes addresses of the current device of a range that somebody else has mapped.
void fakecuda_remember_range(void* begin, uint64_t bytes);
void fakecuda_forget_range(void* begin);

/// Called by every function that has no implementation: prints its name, counts it and returns
/// `error`. With FAKECUDA_LAX=1 it returns 0 instead.
int fakecuda_missing(const char* name, int error);

/// Not 0 when operators are to count their bytes and FLOPs: FAKECUDA_ACCOUNT=1.
int fakecuda_accounts();

/// Not 0 when operators and kernels compute: FAKECUDA_NUMERICS=1.
int fakecuda_computes();

/// Not 0 when this process is the one that a fault planned for FAKECUDA_FAULT_RANK hits.
int fakecuda_is_faulty_rank();
}
