// The state of a model that is divided between ranks, gathered and dealt out.
#include "tests/support/catch.h"
#include "tests/trainer/parallel/probe_output.h"
#include "tests/trainer/test_model.h"

namespace ddp::train {

TEST_CASE("a divided state is gathered and dealt out bit for bit, whoever can read the snapshot") {
  const test::TempDir dir;
  for (const std::string shape : {"1x1x2", "1x2x1"}) {
    INFO(shape);
    CHECK(test::probe(2, "cut_state " + shape + "," + dir.path()) == "done\n");
  }
  for (const std::string shape : {"2x1x2", "2x2x1", "1x2x2", "1x1x4"}) {
    INFO(shape);
    CHECK(test::probe(4, "cut_state " + shape + "," + dir.path()) == "done\n");
  }
}

}  // namespace ddp::train
