// Loops on the threads of the OpenMP runtime that LibTorch has loaded. at::parallel_for() is a
// template: in a file that is compiled without OpenMP, it runs in the calling thread alone.
#pragma once

#include <cstdint>
#include <functional>

namespace ddp::train {

/// Calls work(begin, end) for equal parts of [0, count), at most one per thread and per `grain`
/// begun, and returns when all calls have. In the calling thread alone within another such loop and
/// where no OpenMP runtime is loaded. Rethrows the exception of the first part that threw one.
void parallel_for(int64_t count, int64_t grain, int threads,
                  const std::function<void(int64_t, int64_t)>& work);

}  // namespace ddp::train
