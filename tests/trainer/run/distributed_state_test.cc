// The state of a model that is divided between ranks, gathered and dealt out; its gradients' norm.
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/trainer/parallel/probe_output.h"
#include "tests/trainer/test_model.h"

namespace ddp::train {
namespace {

void check_cut_state(int ranks, const std::vector<std::string>& shapes) {
  const test::TempDir dir;
  for (const std::string& shape : shapes) {
    INFO(shape);
    CHECK(test::probe(ranks, "cut_state " + shape + "," + dir.path()) == "done\n");
  }
}

}  // namespace

TEST_CASE("a divided state is gathered and dealt out bit for bit, whoever can read the snapshot") {
  check_cut_state(4, {"2x1x2", "1x2x2"});
}

TEST_CASE("a state that is divided in any way is gathered and dealt out bit for bit", "[long]") {
  check_cut_state(2, {"1x1x2", "1x2x1"});
  check_cut_state(4, {"2x2x1", "1x1x4"});
}

TEST_CASE("the norm adds the blocks of all ranks in the order of the model, not in theirs") {
  for (const int ranks : {2, 3}) {
    INFO(ranks);
    CHECK(test::probe(ranks, "model_norm") == "done\n");
  }
}

TEST_CASE("ranks that save and load their parts never hold more than these and one tensor") {
  const test::TempDir dir;
  CHECK(test::probe(4, "parts_in_memory " + dir.path()) == "own parts\n");
}

TEST_CASE("a divided state that is gathered is in memory once: no copy of what was gathered") {
  const test::TempDir dir;
  CHECK(test::probe(2, "saved_cut_state " + dir.path()) == "1.0\n");
}

}  // namespace ddp::train
