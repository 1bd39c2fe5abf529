// A model that ranks hold together, cut into stages whose layers are shared.
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/trainer/parallel/probe_output.h"
#include "trainer/model/model_division.h"
#include "trainer/parallel/strategy/pipeline_schedule.h"

namespace ddp::train {
namespace {

/// What ranks of that mesh, PxT, find wrong.
std::string wrong_in(int ranks, const std::string& mesh, const std::string& model,
                     const std::string& schedule, const std::string& rows = "whole") {
  return test::ranks_output(ranks, std::string(DDP_STAGE_PROBE) + " " + mesh + " " + model + " " +
                                       schedule + " " + rows)
      .first;
}

/// The figures of a step simulated in virtual time.
struct Played {
  double idle_share = 0.0;
  std::vector<int64_t> held;  ///< The most micro-batches of each rank.
};

Played play(PipelineSchedule schedule, const PipelineShape& shape) {
  std::istringstream said(test::ranks_output(shape.ranks, std::string(DDP_STAGE_PROBE) + " timed " +
                                                              std::string(name_of(schedule)) + " " +
                                                              std::to_string(shape.chunks) + " " +
                                                              std::to_string(shape.micro_batches))
                              .first);
  Played played;
  said >> played.idle_share;
  for (int64_t held = 0; said >> held;) played.held.push_back(held);
  return played;
}

}  // namespace

// Every pass forward takes 1, every pass backward 2, messages take nothing.
TEST_CASE("the ranks of a pipeline wait and hold as much as their schedule's formulas say") {
  DistributedConfig config;
  for (const auto schedule :
       {PipelineSchedule::kGpipe, PipelineSchedule::k1f1b, PipelineSchedule::kInterleaved}) {
    for (const int ranks : {2, 4}) {
      const PipelineShape shape{ranks, schedule == PipelineSchedule::kInterleaved ? 2 : 1, 8};
      CAPTURE(name_of(schedule), ranks);
      const Played played = play(schedule, shape);
      CHECK(played.idle_share == Approx(pipeline_idle_share(shape)).epsilon(1e-9));
      config.pipeline = shape.ranks;
      config.pipeline_chunks = shape.chunks;
      config.pipeline_schedule = schedule;
      std::vector<int64_t> table;
      for (int rank = 0; rank < ranks; ++rank)
        table.push_back(micro_batches_in_flight(config, rank, shape.micro_batches));
      CHECK(played.held == table);
    }
  }
}

TEST_CASE(
    "in float64, stages compute the losses and gradients of one process, a tied table's too") {
  for (const std::string model : {"gpt", "tied_gpt", "qwen2"}) {
    for (const std::string schedule : {"gpipe", "1f1b", "interleaved"}) {
      INFO(model << ", " << schedule);
      CHECK(wrong_in(2, "2x1", model, schedule) == "done\n");
    }
  }
  CHECK(wrong_in(3, "3x1", "tied_gpt", "1f1b") == "done\n");
  CHECK(wrong_in(4, "4x1", "tied_gpt", "1f1b") == "done\n");
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
