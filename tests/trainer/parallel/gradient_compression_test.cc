// Gradients reduced in 16 bits, compared with torch's own hooks.

#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/trainer/parallel/probe_output.h"

namespace ddp::train {

TEST_CASE("compressed gradients are those of torch's hooks, bit for bit", "[peer]") {
  const std::string whole = test::probe(3, "compress none");
  std::string ours;
  for (const std::string type : {"bf16", "fp16"}) {
    INFO(type);
    const std::string compressed = test::probe(3, "compress " + type);
    CHECK(compressed != whole);
    ours += compressed;
  }
  const auto [theirs, status] =
      test::ranks_output(3, std::string(DDP_TEST_PYTHON) + " " + DDP_TEST_DIR +
                                "/parallel/compress_peer.py bf16 fp16");
  if (theirs == "no torch\n")
    return ddp::test::say_skipped(std::string(DDP_TEST_PYTHON) + " cannot import torch");
  REQUIRE(status == 0);
  CHECK(ours == theirs);
}

}  // namespace ddp::train
