// The kernels of a step on the CPU use the threads that torch's own operations use.
#include <ATen/Parallel.h>

#include <array>
#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/support/catch.h"
#include "trainer/model/ops/row_blocks.h"
#include "trainer/runtime/parallel_for.h"

namespace ddp::train {
namespace {

struct WithThreads {
  explicit WithThreads(int count) : before(at::get_num_threads()) { at::set_num_threads(count); }
  ~WithThreads() { at::set_num_threads(before); }
  int before;
};

TEST_CASE("blocks of rows are shared by all threads of torch, each block once") {
  const WithThreads threads(3);
  const auto x = torch::empty({3 * fused::kBlockRows + 1, 2});
  std::array<std::thread::id, 4> thread_of_block;
  std::array<std::atomic<int>, 4> visits{};
  fused::by_blocks(x, [&](cpu::Rows rows, int64_t block) {
    const auto at = static_cast<std::size_t>(block);
    visits[at] += static_cast<int>(rows.last - rows.first);
    thread_of_block[at] = std::this_thread::get_id();
  });
  const int whole = static_cast<int>(fused::kBlockRows);
  CHECK(visits[0] == whole);
  CHECK(visits[1] == whole);
  CHECK(visits[2] == whole);
  CHECK(visits[3] == 1);
  // Parts of two blocks: two of the three threads.
  CHECK(std::set(thread_of_block.begin(), thread_of_block.end()).size() == 2);
}

TEST_CASE("a loop within a loop runs in its thread") {
  std::array<bool, 2> same{};
  parallel_for(2, 1, /*threads=*/2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto outer = std::this_thread::get_id();
      parallel_for(8, 1, 2, [&](int64_t first, int64_t last) {
        same[static_cast<std::size_t>(i)] =
            first == 0 && last == 8 && std::this_thread::get_id() == outer;
      });
    }
  });
  CHECK(same[0]);
  CHECK(same[1]);
}

TEST_CASE("the exception of the first part ends a loop after all parts have run") {
  std::array<std::atomic<bool>, 3> ran{};
  std::string message;
  try {
    parallel_for(3, 1, /*threads=*/3, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ran[static_cast<std::size_t>(i)] = true;
      if (begin > 0) throw std::runtime_error("part " + std::to_string(begin));
    });
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  CHECK(message == "part 1");
  for (const auto& one : ran) CHECK(one);
}

}  // namespace
}  // namespace ddp::train
