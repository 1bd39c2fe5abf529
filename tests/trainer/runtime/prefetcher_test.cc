// Items made ahead by threads. Also run under ThreadSanitizer.
#include "trainer/runtime/process/prefetcher.h"

#include <pthread.h>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include "tests/support/catch.h"

namespace ddp::train {
namespace {

using Numbers = Prefetcher<int, std::vector<int>>;

/// 0, 1, 2, ... without a lock of its own, as Take is never called by two threads at a time.
auto counting(int& next) {
  return [&next] { return next++; };
}

std::vector<int> row_of(int number) { return std::vector<int>(100, number); }

}  // namespace

TEST_CASE("items come in order, whatever the number of threads") {
  for (const int64_t workers : {0, 1, 2, 4, 8}) {
    int next = 0;
    Numbers rows(workers, 2 * workers, counting(next), row_of);
    for (int i = 0; i < 1000; ++i) REQUIRE(rows.next() == row_of(i));
  }
}

TEST_CASE("threads that the system refuses are done without") {
  pthread_attr_t usual, huge;
  REQUIRE(::pthread_getattr_default_np(&usual) == 0);
  REQUIRE(::pthread_attr_init(&huge) == 0);
  REQUIRE(::pthread_attr_setstacksize(&huge, std::size_t{1} << 50U) == 0);  // no room for that
  REQUIRE(::pthread_setattr_default_np(&huge) == 0);
  int next = 0;
  Numbers rows(2, 4, counting(next), row_of);
  REQUIRE(::pthread_setattr_default_np(&usual) == 0);
  for (int i = 0; i < 10; ++i) REQUIRE(rows.next() == row_of(i));
}

TEST_CASE("threads stay at most so many items ahead") {
  int next = 0;
  std::atomic<int> made = 0;
  constexpr int kAhead = 6;
  Numbers rows(3, kAhead, counting(next), [&](int number) {
    ++made;
    return row_of(number);
  });
  for (int i = 0; i < 500; ++i) {
    rows.next();
    CHECK(made <= i + 1 + kAhead);
  }
}

TEST_CASE("an error comes in its turn, and what follows it still comes") {
  for (const int workers : {0, 1, 4}) {
    int next = 0;
    Numbers rows(workers, 8, counting(next), [](int number) {
      if (number % 5 == 3) throw std::runtime_error("no " + std::to_string(number));
      return row_of(number);
    });
    for (int i = 0; i < 100; ++i) {
      if (i % 5 == 3)
        CHECK_THROWS_WITH(rows.next(), "no " + std::to_string(i));
      else
        CHECK(rows.next() == row_of(i));
    }
  }
}

TEST_CASE("an error in the order itself is the consumer's, too") {
  for (const int workers : {0, 2}) {
    Numbers rows(
        workers, 4, []() -> int { throw std::runtime_error("no order"); }, row_of);
    CHECK_THROWS_WITH(rows.next(), "no order");
    CHECK_THROWS_WITH(rows.next(), "no order");
  }
}

TEST_CASE("the end comes while items wait, and while they are being made") {
  for (int round = 0; round < 100; ++round) {
    int next = 0;
    Numbers rows(4, 8, counting(next), row_of);
    for (int i = 0; i < round % 7; ++i) rows.next();
  }
  std::promise<void> begun, gate;
  auto opened = gate.get_future().share();
  int next = 0;
  auto rows = std::make_unique<Numbers>(1, 1, counting(next), [&](int number) {
    begun.set_value();
    opened.wait();
    return row_of(number);
  });
  begun.get_future().wait();
  auto ended = std::async(std::launch::async, [&] { rows.reset(); });
  gate.set_value();
  ended.wait();
  CHECK(rows == nullptr);
}

}  // namespace ddp::train
