#include "trainer/runtime/parallel_for.h"

#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <vector>

namespace ddp::train {
namespace {

/// The functions that a compiler calls for `#pragma omp parallel`, in whichever file LibTorch keeps
/// them: libgomp.so.1, libgomp-<hash>.so.1 and libiomp5.so have them all.
struct OpenMp {
  static const OpenMp& loaded() {
    static const OpenMp functions;
    return functions;
  }

  bool complete() const { return parallel && thread && threads && in_parallel; }

  void (*parallel)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
  int (*thread)();
  int (*threads)();
  int (*in_parallel)();

 private:
  OpenMp()
      : parallel(reinterpret_cast<decltype(parallel)>(::dlsym(RTLD_DEFAULT, "GOMP_parallel"))),
        thread(function("omp_get_thread_num")),
        threads(function("omp_get_num_threads")),
        in_parallel(function("omp_in_parallel")) {}

  static int (*function(const char* name))() {
    return reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, name));
  }
};

struct Loop {
  int64_t count;
  int64_t part;  ///< Length of each but the last.
  const std::function<void(int64_t, int64_t)>& work;
  std::vector<std::exception_ptr> failures;  ///< One per part.

  void run(std::size_t index) {
    const int64_t begin = static_cast<int64_t>(index) * part;
    try {
      work(begin, std::min(count, begin + part));
    } catch (...) {
      failures[index] = std::current_exception();
    }
  }
};

void run_parts_of_thread(void* data) {
  auto& loop = *static_cast<Loop*>(data);
  const OpenMp& omp = OpenMp::loaded();
  const auto stride = static_cast<std::size_t>(omp.threads());
  for (auto i = static_cast<std::size_t>(omp.thread()); i < loop.failures.size(); i += stride)
    loop.run(i);
}

}  // namespace

void parallel_for(int64_t count, int64_t grain, int threads,
                  const std::function<void(int64_t, int64_t)>& work) {
  if (count <= 0) return;
  const OpenMp& omp = OpenMp::loaded();
  const int64_t most = (count + grain - 1) / grain;
  const int64_t wanted = std::min<int64_t>(most, threads);
  if (wanted <= 1 || !omp.complete() || omp.in_parallel() != 0) return work(0, count);
  const int64_t part = (count + wanted - 1) / wanted;
  const auto parts = static_cast<std::size_t>((count + part - 1) / part);
  Loop loop{count, part, work, std::vector<std::exception_ptr>(parts)};
  omp.parallel(run_parts_of_thread, &loop, static_cast<unsigned>(parts), 0);
  for (const auto& failure : loop.failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace ddp::train
