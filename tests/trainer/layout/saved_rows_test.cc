#include "trainer/layout/saved_rows.h"

#include <algorithm>
#include <random>
#include <vector>
#include "tests/support/catch.h"

namespace ddp::train {

// For messages; next to the types, where lists of them look.
inline std::ostream& operator<<(std::ostream& out, const ElementRange& range) {
  return out << "{" << range.rank << ", " << range.begin << ", " << range.end << "}";
}
inline std::ostream& operator<<(std::ostream& out, const Move& move) {
  return out << "{" << move.from << ", " << move.to << ", " << move.begin << ", " << move.end
             << "}";
}

namespace {

using Ranges = std::vector<ElementRange>;

/// Every element from 0 to `elements` is in one range, in order.
bool covers(const Ranges& ranges, int64_t elements) {
  int64_t next = 0;
  for (const ElementRange& range : ranges) {
    if (range.begin != next || range.end <= range.begin) return false;
    next = range.end;
  }
  return next == elements;
}

/// Cuts `elements` at random places and deals the parts to `ranks` in turns.
Ranges dealt(int64_t elements, int parts, int ranks, std::mt19937& random) {
  Ranges ranges;
  int64_t begin = 0;
  for (int i = 0; i < parts && begin < elements; ++i) {
    const int64_t left = elements - begin;
    const int64_t size =
        i + 1 == parts ? left : std::uniform_int_distribution<int64_t>(1, left)(random);
    ranges.push_back({i % ranks, begin, begin + size});
    begin += size;
  }
  return ranges;
}

}  // namespace

TEST_CASE("a row is saved by the rank that holds its first element") {
  const Ranges held = {{0, 0, 25}, {1, 25, 40}, {2, 40, 60}};
  CHECK(rows_to_save(held, 10, 3) == Ranges{{0, 0, 30}, {1, 30, 40}, {2, 40, 60}});
  CHECK(moves_between(held, rows_to_save(held, 10, 3)) == std::vector<Move>{{1, 0, 25, 30}});
}

TEST_CASE("a row that is longer than what a rank holds goes to one rank") {
  const Ranges held = {{0, 0, 4}, {1, 4, 8}, {2, 8, 12}};
  CHECK(rows_to_save(held, 12, 3) == Ranges{{0, 0, 12}});
}

TEST_CASE("cuts between rows move nothing") {
  const Ranges held = {{1, 0, 20}, {0, 20, 60}};
  CHECK(rows_to_save(held, 10, 2) == held);
  CHECK(moves_between(held, held).empty());
}

TEST_CASE("a rank with ranges that lie apart saves one part, as the others do") {
  const Ranges held = {{0, 0, 10}, {1, 10, 20}, {0, 20, 30}, {1, 30, 40}};
  CHECK(rows_to_save(held, 5, 2) == Ranges{{0, 0, 20}, {1, 20, 40}});
  CHECK(moves_between(held, rows_to_save(held, 5, 2)) ==
        std::vector<Move>{{1, 0, 10, 20}, {0, 1, 20, 30}});
}

TEST_CASE("however a tensor is divided, each element is saved once and comes from its holder") {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const int ranks = 1 + round % 5;
    const int64_t row = 1 + round % 17;
    const int64_t elements = row * (1 + round % 23);
    const Ranges held = dealt(elements, 1 + round % (2 * ranks), ranks, random);
    REQUIRE(covers(held, elements));
    const Ranges saved = rows_to_save(held, row, ranks);
    INFO("round " << round);
    CHECK(covers(saved, elements));
    std::vector<int> savers(static_cast<std::size_t>(ranks), 0);
    for (const ElementRange& range : saved) {
      CHECK(range.begin % row == 0);
      CHECK(++savers[static_cast<std::size_t>(range.rank)] == 1);
    }
    int64_t there = 0;  // held by the rank that saves them, or moved to it
    for (const Move& move : moves_between(held, saved)) there += move.end - move.begin;
    for (const ElementRange& range : held) {
      for (const ElementRange& target : saved) {
        if (range.rank == target.rank)
          there += std::max<int64_t>(
              0, std::min(range.end, target.end) - std::max(range.begin, target.begin));
      }
    }
    CHECK(there == elements);
  }
}

}  // namespace ddp::train
