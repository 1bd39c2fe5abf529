// A model that ranks hold together, cut into stages whose layers are shared.
#include <string>

#include "tests/support/catch.h"
#include "tests/trainer/parallel/probe_output.h"

namespace ddp::train {
namespace {

/// What ranks of that mesh, PxT, find wrong.
std::string wrong_in(int ranks, const std::string& mesh, const std::string& model,
                     const std::string& schedule, const std::string& rows = "whole") {
  return test::ranks_output(ranks, std::string(DDP_STAGE_PROBE) + " " + mesh + " " + model + " " +
                                       schedule + " " + rows)
      .first;
}

}  // namespace

TEST_CASE(
    "in float64, stages compute the losses and gradients of one process, a tied table's too") {
  for (const std::string model : {"gpt", "tied_gpt", "qwen2"}) {
    for (const std::string schedule : {"gpipe", "1f1b", "interleaved"}) {
      INFO(model << ", " << schedule);
      CHECK(wrong_in(2, "2x1", model, schedule) == "done\n");
    }
  }
  CHECK(wrong_in(3, "3x1", "tied_gpt", "1f1b") == "done\n");
}

TEST_CASE("in float64, stages whose layers are shared compute those of one process") {
  for (const std::string model : {"gpt", "tied_gpt", "qwen2", "llama3"}) {
    for (const std::string schedule : {"1f1b", "interleaved"}) {
      for (const std::string rows : {"whole", "by_sequence"}) {
        INFO(model << ", " << schedule << ", " << rows);
        CHECK(wrong_in(4, "2x2", model, schedule, rows) == "done\n");
      }
    }
  }
}

TEST_CASE("in float64, three ranks that share layers compute those of one process") {
  CHECK(wrong_in(3, "1x3", "gpt_of_six_heads", "1f1b") == "done\n");
}

}  // namespace ddp::train
