// All-reduces through c10d between real ranks that share memory.
#include "tests/support/catch.h"

#include "tests/trainer/parallel/probe_output.h"

namespace ddp::train {

TEST_CASE("all-reduces through shared memory are sums in the order of the ranks, of every type") {
  for (const int ranks : {2, 3}) {
    INFO(ranks << " ranks");
    const std::string said = test::probe(ranks, "reduce memory");
    CHECK_THAT(said, Catch::StartsWith("memory, right\n"));
    CHECK_THAT(said, Catch::Contains("the ranks reduce different things: rank 0 the sum of 3 "
                                     "float32, rank ") &&
                         Catch::Contains(" the sum of 4 float32\n"));
  }
}

// Divided weights exist while they are used, and their gradients are those of all ranks.
TEST_CASE(
    "rows and divided layers are summed in the order of the ranks and gathered, by memory and by "
    "sockets") {
  for (const int ranks : {2, 3}) {
    INFO(ranks << " ranks");
    CHECK(test::probe(ranks, "rows_and_layers") ==
          "memory, rows right, layers right\nsockets, rows right, layers right\n");
  }
}

TEST_CASE("with backend=gloo no memory is shared") {
  CHECK(test::probe(2, "reduce gloo") == "sockets, right\n");
}

}  // namespace ddp::train
