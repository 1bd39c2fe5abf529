#include "trainer/snapshot/resume_check.h"

#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/runtime/error.h"
#include "trainer/task/causal_lm.h"

namespace ddp::train {
namespace {

struct SavedRun {
  test::TempDir dir;
  Config config;
  SavedRun() {
    config.data.path = dir.write("text", "hello world, hello text, hello again and again");
    config.data.block_size = 8;
    config.trainer.batch_size = 4;
    config.gpt = test::tiny_config();
  }
  SnapshotMeta meta() const {
    const CausalLm task(config, nullptr);
    SnapshotMeta meta;
    meta.cursor = {3, 8};
    meta.task = task.metadata();
    meta.config_json = config_to_json(config);
    meta.data_sha256 = task.training().fingerprint();
    return meta;
  }
  CausalLm task() const { return CausalLm(config, nullptr); }
};

}  // namespace

TEST_CASE("an unchanged configuration resumes without a word") {
  const SavedRun run;
  CHECK(check_resume(run.meta(), run.config, run.task()).empty());
  CHECK(same_data_order(run.meta(), run.config, run.task()));
}

TEST_CASE("edited hyperparameters are allowed and shown, run lengths and paths pass silently") {
  SavedRun run;
  const auto meta = run.meta();
  run.config.optimizer.learning_rate = 0.125;
  run.config.trainer.max_epochs = 99;
  run.config.trainer.snapshot_path = "/elsewhere";
  const auto lines = check_resume(meta, run.config, run.task());
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0],
             Catch::Contains("optimizer_config.learning_rate") && Catch::Contains("0.125"));
}

TEST_CASE("another end of the run is shown where the schedule follows it") {
  SavedRun run;
  run.config.optimizer.lr_schedule = LrSchedule::kCosine;
  const auto meta = run.meta();
  run.config.trainer.max_steps = 30;
  CHECK(check_resume(meta, run.config, run.task()) ==
        std::vector<std::string>{"Changed since the snapshot: trainer_config.max_steps null -> 30; "
                                 "lr_schedule=cosine follows the length of the run"});
  run.config.optimizer.decay_steps = 20;
  CHECK_THAT(check_resume(meta, run.config, run.task()),
             Catch::Equals(std::vector<std::string>{
                 "Changed since the snapshot: optimizer_config.decay_steps null -> 20"}));
}

TEST_CASE("a pretrained model named on a resume is shown as without effect") {
  SavedRun run;
  const auto meta = run.meta();
  const auto task = run.task();
  run.config.gpt.init_from = "/gpt2";
  CHECK_THAT(check_resume(meta, run.config, task),
             Catch::Equals(std::vector<std::string>{
                 "Changed since the snapshot: gpt_config.init_from null -> \"/gpt2\"; without "
                 "effect, as the weights are those of the snapshot; set "
                 "trainer_config.snapshot_path to a new file to start from scratch"}));
}

TEST_CASE("another model is refused with both values and the way out") {
  SavedRun run;
  const auto meta = run.meta();
  run.config.gpt.n_embd = 64;
  CHECK_THROWS_WITH(
      check_resume(meta, run.config, run.task()),
      Catch::Contains("gpt_config.n_embd is 32 there, 64") && Catch::Contains("snapshot_path"));
  // The first in the order of the keys, not of their names: a head_dim follows from n_embd.
  run.config.gpt.n_layer = 3;
  CHECK_THROWS_WITH(check_resume(meta, run.config, run.task()),
                    Catch::Contains("gpt_config.n_layer is 2 there, 3"));
}

TEST_CASE("another optimizer is refused, and may begin from the snapshot's weights") {
  SavedRun run;
  const auto meta = run.meta();
  run.config.optimizer.name = OptimizerName::kSgd;
  run.config.trainer.snapshot_path = "run/snapshot.pt";
  CHECK_THROWS_WITH(
      check_resume(meta, run.config, run.task()),
      Catch::EndsWith("set trainer_config.snapshot_path to a new file to start from scratch, or "
                      "from its weights with init_from=run/snapshot.pt as well"));
}

TEST_CASE("a model of another shape for want of init_from is refused with the one to add") {
  SavedRun run;
  auto meta = run.meta();
  run.config.gpt.init_from = "/gpt2";
  meta.config_json = config_to_json(run.config);
  run.config.gpt.init_from.clear();
  run.config.gpt.n_embd = 64;
  CHECK_THROWS_WITH(check_resume(meta, run.config, run.task()),
                    Catch::Contains("gpt_config.n_embd is 32 there, 64 in this configuration; add "
                                    "init_from=/gpt2 again, or set"));
}

TEST_CASE(
    "another vocabulary is refused, another text of the same characters starts its epoch anew") {
  SavedRun run;
  const auto meta = run.meta();
  run.config.data.path = run.dir.write("other", "again, hello hello world and hello text");
  const CausalLm other(run.config, &meta.task);
  CHECK_FALSE(same_data_order(meta, run.config, other));
  CHECK_THAT(check_resume(meta, run.config, other).back(), Catch::Contains("epoch 4 starts over"));
  run.config.data.path = run.dir.write("third", "xyz xyz xyz xyz xyz");
  CHECK_THROWS_AS(CausalLm(run.config, &meta.task), UserError);
  CHECK_THROWS_WITH(run.task().check_resume(meta.task, "snapshot.pt"),
                    Catch::Contains("another vocabulary"));
}

TEST_CASE("what changes the samples starts the epoch anew: evaluation data of its own as well") {
  SavedRun run;
  const auto meta = run.meta();
  run.config.data.eval_path = run.config.data.path;  // all of the text is trained on
  CHECK_FALSE(same_data_order(meta, run.config, run.task()));
  CHECK_THAT(check_resume(meta, run.config, run.task()),
             Catch::VectorContains(std::string(
                 "The training data differs from the snapshot's: epoch 4 starts over")));
  const auto with_own = run.meta();
  run.config.data.eval_path = run.dir.write("other", "again, hello hello world and hello text");
  CHECK(same_data_order(with_own, run.config, run.task()));
}

}  // namespace ddp::train
