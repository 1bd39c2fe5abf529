#include "trainer/runtime/parallel_for.h"

#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

TEST_CASE("a loop without an OpenMP runtime covers its range in the calling thread") {
  std::vector<std::pair<int64_t, int64_t>> parts;
  parallel_for(7, 2, /*threads=*/4, [&](int64_t begin, int64_t end) {
    parts.emplace_back(begin, end);
    if (begin == end) throw std::logic_error("an empty part");
  });
  CHECK(parts == std::vector<std::pair<int64_t, int64_t>>{{0, 7}});
  parallel_for(0, 2, 4, [](int64_t, int64_t) { throw std::logic_error("an empty range"); });
}

}  // namespace
}  // namespace ddp::train
