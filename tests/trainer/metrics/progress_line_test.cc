#include "trainer/metrics/progress_line.h"

#include "tests/support/catch.h"

#include "trainer/metrics/throughput.h"
#include "trainer/model/cost/training_cost.h"

namespace ddp::train {
namespace {

Progress in_the_middle() {
  Progress progress;
  progress.epoch = 2;
  progress.step = 1200;
  progress.last_step = 5000;
  progress.loss = 2.3124;
  progress.eval_loss = 2.4018;
  progress.learning_rate = 3e-4;
  progress.per_second = 12300;
  progress.seconds_left = 192;
  progress.memory = 812'000'000;
  return progress;
}

TEST_CASE("the live line says how far a run is, how well it goes and when it ends") {
  CHECK(progress_line(in_the_middle(), 200) ==
        "Epoch 2 | 1200/5000 [####----------------]  24 % | loss 2.3124 | val 2.4018 | 3:12 left "
        "| 12.30k tok/s | lr 3.0e-04 | 812.00MB");
}

TEST_CASE("what has no room on the line is left out from the right") {
  for (int width = 0; width < 140; ++width)
    CHECK(progress_line(in_the_middle(), width).size() <= static_cast<std::size_t>(width));
  CHECK(progress_line(in_the_middle(), 113) ==
        "Epoch 2 | 1200/5000 [#------]  24 % | loss 2.3124 | val 2.4018 | 3:12 left "
        "| 12.30k tok/s | lr 3.0e-04 | 812.00MB");
  CHECK(progress_line(in_the_middle(), 84) ==
        "Epoch 2 | 1200/5000  24 % | loss 2.3124 | val 2.4018 | 3:12 left | 12.30k tok/s");
  CHECK(progress_line(in_the_middle(), 74) ==
        "Epoch 2 | 1200/5000  24 % | loss 2.3124 | val 2.4018 | 3:12 left");
}

TEST_CASE("a line without an end, a loss or a rate leaves them out") {
  Progress progress;
  progress.epoch = 1;
  progress.step = 3;
  CHECK(progress_line(progress, 80) == "Epoch 1 | step 3 | lr 0.0e+00");
}

TEST_CASE("the bar is full at the end only") {
  Progress progress = in_the_middle();
  progress.step = 4999;
  CHECK_THAT(progress_line(progress, 140), Catch::Contains("[###################-]  99 %"));
  progress.step = 5000;
  CHECK_THAT(progress_line(progress, 140), Catch::Contains("[####################] 100 %"));
}

TEST_CASE("durations are short") {
  CHECK(duration_text(-1) == "0:00");
  CHECK(duration_text(75) == "1:15");
  CHECK(duration_text(3700) == "1:01:40");
  CHECK(duration_text(200000) == "2 d 7 h");
}

TEST_CASE("the work of a token is that of nanoGPT's estimate_mfu") {
  // GPT-2 124M as nanoGPT counts it: N without position embeddings, 12 layers, 768 channels.
  const ModelSize size{123'653'376, 12, 768, 1024};
  CHECK(flops_per_token(size) == 6.0 * 123'653'376 + 12.0 * 12 * 768 * 1024);
  CHECK(model_flops_utilization(1e5, 1e9, 1e14, 2) == Approx(0.5));
}

}  // namespace
}  // namespace ddp::train
