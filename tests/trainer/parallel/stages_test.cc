// A model that ranks hold together, cut into stages whose layers are shared.
#include <algorithm>
#include <string>

#include "tests/support/catch.h"
#include "tests/trainer/parallel/probe_output.h"
#include "trainer/parallel/pipeline_schedule.h"

namespace ddp::train {
namespace {

/// What ranks of that mesh, PxT, find wrong.
std::string wrong_in(int ranks, const std::string& mesh, const std::string& model,
                     const std::string& schedule, const std::string& rows = "whole") {
  return test::ranks_output(ranks, std::string(DDP_STAGE_PROBE) + " " + mesh + " " + model + " " +
                                       schedule + " " + rows)
      .first;
}

/// Share of a step in which sleeping stages wait; the smallest of several steps, as a busy machine
/// makes them longer.
double idle_share(int ranks, const std::string& schedule, double enough) {
  double idle = 1.0;
  for (int attempt = 0; attempt < 5 && idle > enough; ++attempt) {
    const std::string command = std::string(DDP_STAGE_PROBE) + " sleeping " + schedule;
    idle = std::min(idle, std::stod(test::ranks_output(ranks, command).first));
  }
  return idle;
}

}  // namespace

TEST_CASE("ranks wait less under zero_bubble than under 1f1b") {
  for (const int ranks : {2, 4}) {
    const PipelineShape shape{ranks, 1, 8};
    const auto share = [&](PipelineSchedule schedule) {
      const double bubble = pipeline_bubble(schedule, shape, 1.0, 1.0, 1.0);
      return bubble / (8 * 3.0 + bubble);
    };
    const double whole = share(PipelineSchedule::k1f1b);
    const double halves = share(PipelineSchedule::kZeroBubble);
    const double limit = (whole + halves) / 2;
    const double measured = idle_share(ranks, "zero_bubble", limit);
    CAPTURE(ranks, whole, halves);
    CHECK(measured < limit);
    CHECK(measured >= halves);
    CHECK(idle_share(ranks, "1f1b", whole) >= whole);  // sleep takes no less than it should
  }
}

TEST_CASE(
    "in float64, stages compute the losses and gradients of one process, a tied table's too") {
  for (const std::string model : {"gpt", "tied_gpt", "qwen2"}) {
    for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zero_bubble"}) {
      INFO(model << ", " << schedule);
      CHECK(wrong_in(2, "2x1", model, schedule) == "done\n");
    }
  }
  CHECK(wrong_in(3, "3x1", "tied_gpt", "1f1b") == "done\n");
  CHECK(wrong_in(4, "4x1", "tied_gpt", "zero_bubble") == "done\n");
}

TEST_CASE("in float64, stages whose layers are shared compute those of one process") {
  for (const std::string model : {"gpt", "tied_gpt", "qwen2", "llama3"}) {
    for (const std::string schedule : {"1f1b", "interleaved", "zero_bubble"}) {
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
