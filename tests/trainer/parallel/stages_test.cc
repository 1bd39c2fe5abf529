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

/// What ranks of that mesh, PxT, find wrong in cases of MODEL,SCHEDULE,ROWS.
std::string wrong_in(int ranks, const std::string& mesh, const std::string& cases) {
  return test::ranks_output(ranks, std::string(DDP_STAGE_PROBE) + " " + mesh + " " + cases).first;
}

/// The figures of a step simulated in virtual time.
struct Played {
  double idle_share = 0.0;
  std::vector<int64_t> held;  ///< The most micro-batches of each rank.
};

struct Pipeline {
  PipelineSchedule schedule;
  PipelineShape shape;
};

/// Pipelines of `ranks`.
std::vector<Played> play(int ranks, const std::vector<Pipeline>& pipelines) {
  std::string command = std::string(DDP_STAGE_PROBE) + " timed";
  for (const auto& [schedule, shape] : pipelines)
    command += " " + std::string(name_of(schedule)) + "," + std::to_string(shape.chunks) + "," +
               std::to_string(shape.micro_batches);
  std::istringstream said(test::ranks_output(ranks, command).first);
  std::vector<Played> all;
  for (std::string line; std::getline(said, line);) {
    std::istringstream words(line);
    Played& played = all.emplace_back();
    words >> played.idle_share;
    for (int64_t held = 0; words >> held;) played.held.push_back(held);
  }
  return all;
}

}  // namespace

// Every pass forward takes 1, every pass backward 2, messages take nothing.
TEST_CASE("the ranks of a pipeline wait and hold as much as their schedule's formulas say") {
  DistributedConfig config;
  for (const int ranks : {2, 4}) {
    std::vector<Pipeline> pipelines;
    for (const auto schedule :
         {PipelineSchedule::kGpipe, PipelineSchedule::k1f1b, PipelineSchedule::kInterleaved})
      pipelines.push_back(
          {schedule, {ranks, schedule == PipelineSchedule::kInterleaved ? 2 : 1, 8}});
    const auto all = play(ranks, pipelines);
    REQUIRE(all.size() == pipelines.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& [schedule, shape] = pipelines[i];
      const Played& played = all[i];
      CAPTURE(name_of(schedule), ranks);
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
  // A schedule orders passes of any model: each model under one, a tied table under all.
  CHECK(wrong_in(2, "2x1",
                 "tied_gpt,gpipe,whole tied_gpt,1f1b,whole tied_gpt,interleaved,whole "
                 "gpt,interleaved,whole qwen2,gpipe,whole phi3,1f1b,whole gemma2,interleaved,whole "
                 "gemma3_text,gpipe,whole mixtral,interleaved,whole") == "done\n");
}

TEST_CASE("in float64, four stages compute the losses and gradients of one process", "[long]") {
  CHECK(wrong_in(4, "4x1", "tied_gpt,1f1b,whole") == "done\n");
}

TEST_CASE("in float64, stages whose layers are shared compute those of one process") {
  CHECK(wrong_in(4, "2x2",
                 "tied_gpt,interleaved,by_sequence llama3,1f1b,by_sequence "
                 "qwen3_moe,interleaved,whole") == "done\n");
}

TEST_CASE("in float64, stages of other models whose layers are shared compute those of one process",
          "[long]") {
  CHECK(wrong_in(4, "2x2",
                 "tied_gpt,1f1b,whole gpt,1f1b,by_sequence qwen2,interleaved,whole "
                 "qwen3_moe,1f1b,by_sequence") == "done\n");
}

TEST_CASE("in float64, three ranks that share layers compute those of one process") {
  CHECK(wrong_in(3, "1x3", "gpt_of_six_heads,1f1b,whole") == "done\n");
}

}  // namespace ddp::train
