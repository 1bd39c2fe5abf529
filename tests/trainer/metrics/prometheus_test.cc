#include "trainer/metrics/prometheus_sink.h"

#include <cmath>

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/metrics/text_of.h"

namespace ddp::train {
namespace {

TEST_CASE("the newest numbers of each split stand in one file, samples of one name together") {
  const test::TempFolder folder;
  PrometheusSink sink(folder.path());
  sink.begin_after(0);
  sink.write({10, 0.5, "train", {{"loss", 3.0}, {"grad-norm", NAN}}, 0.0});
  sink.write({10, 0.5, "eval", {{"loss", 2.0}}, 0.0});
  sink.write({20, 1.0, "train", {{"loss", 1.5}, {"grad-norm", INFINITY}}, 0.0});
  CHECK(test::text_of(folder / "metrics.prom") ==
        "# TYPE trainer_epoch gauge\ntrainer_epoch{split=\"eval\"} 0.5\n"
        "trainer_epoch{split=\"train\"} 1\n"
        "# TYPE trainer_grad_norm gauge\ntrainer_grad_norm{split=\"train\"} +Inf\n"
        "# TYPE trainer_loss gauge\ntrainer_loss{split=\"eval\"} 2\n"
        "trainer_loss{split=\"train\"} 1.5\n"
        "# TYPE trainer_step gauge\ntrainer_step{split=\"eval\"} 10\n"
        "trainer_step{split=\"train\"} 20\n");
}

TEST_CASE("of names that differ in other characters alone the first is kept") {
  const std::string text =
      prometheus_text({{"eval", {1, 1.0, "eval", {{"f1/a b", 0.5}, {"f1/a-b", 0.25}}, 0.0}}});
  CHECK_THAT(text, Catch::Contains("trainer_f1_a_b{split=\"eval\"} 0.5\n"));
  CHECK(text.find("0.25") == std::string::npos);
}

}  // namespace
}  // namespace ddp::train
