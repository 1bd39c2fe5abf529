// --multirun: jobs in turn, each as if it were alone; and the folder of a run.
#include <csignal>
#include <filesystem>
#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"

namespace ddp::test {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a job of a sweep leaves the same snapshot as the same job alone") {
  const Workspace swept;
  const Finished sweep = succeed(
      launched(swept, 2,
               {"--multirun", "trainer_config.seed=7,8", "trainer_config.max_steps=range(6,11,4)",
                "hydra.sweep.dir=sweep", "hydra.job.chdir=true"}));
  CHECK(sweep.out.find("Sweep of 4 jobs") != std::string::npos);
  const Workspace alone;
  succeed(launched(alone, 2, {"trainer_config.seed=8", "trainer_config.max_steps=10"}));
  CHECK(differences(swept / "sweep/3/snapshot.pt", alone.snapshot()) == Words{});
  CHECK(inspect(swept, "sweep/3/snapshot.pt")["content_sha256"] == content_sha256(alone));
  CHECK(inspect(swept, "sweep/0/snapshot.pt")["content_sha256"] != content_sha256(alone));
  CHECK(read_bytes(swept / "sweep/3/.hydra/overrides.yaml") ==
        "- trainer_config.seed=8\n- trainer_config.max_steps=10\n");
  CHECK(fs::exists(swept / "sweep/multirun.yaml"));
}

TEST_CASE("a job that fails does not end the sweep, and the table and the exit code tell of it") {
  const Workspace place;
  succeed(launched(place, 2, {"gpt_config.n_embd=16", "trainer_config.max_steps=3"}));
  const Finished sweep =
      finish(launched(place, 2,
                      {"hydra.mode=MULTIRUN", "hydra.sweeper.max_batch_size=1",
                       "trainer_config.snapshot_path=one.pt," + place.snapshot() + ",two.pt",
                       "trainer_config.max_steps=3", "hydra.sweep.dir=sweep"}));
  INFO(sweep.out << sweep.err);
  CHECK(sweep.exit != 0);
  const std::string ignored = "hydra.sweeper.max_batch_size: ignored";
  CHECK(read_bytes(place / "sweep/0/main.log").find(ignored) != std::string::npos);
  CHECK(read_bytes(place / "sweep/2/main.log").find(ignored) == std::string::npos);
  CHECK(sweep.err.find("error: job 1: ") != std::string::npos);
  CHECK(sweep.out.find("failed: ") != std::string::npos);
  CHECK(fs::exists(place / "sweep/0/one.pt"));
  CHECK(fs::exists(place / "sweep/2/two.pt"));
}

TEST_CASE("a kill in a sweep restarts the group at once, and the sweep goes on") {
  const Workspace place;
  ChildProgram sweep(launched(
      place, 2,
      {"--multirun", "trainer_config.seed=1,2", "trainer_config.max_steps=8",
       "hydra.sweep.dir=sweep", R"(+trainer_config.fault_plan=["rank=1 step=7 kind=kill"])"},
      {"--max_restarts=1", "--shutdown-timeout=1000"}));
  sweep.wait_all_gone(kPatience);  // far below the time that is given to workers to stop
  INFO(sweep.out() << sweep.err());
  CHECK(sweep.wait_exit(kPatience) == 0);
  CHECK(sweep.err().find("restart 1 of 1") != std::string::npos);
  CHECK(fs::exists(place / "sweep/1/snapshot.pt"));
}

// The save of step 10 has waited for that of step 5.
TEST_CASE("a job of a sweep that died is counted in the account of the one that continues it") {
  const Workspace place;
  const Words words = {"--multirun", "trainer_config.seed=1,2", "trainer_config.max_steps=13",
                       "trainer_config.save_every_steps=5", "hydra.sweep.dir=sweep"};
  const auto summary = [&](const std::string& job) {
    return nlohmann::json::parse(read_bytes(place / ("sweep/" + job + "/run_summary.json")));
  };
  const Finished killed = finish(
      alone(place, joined(words, {R"(+trainer_config.fault_plan=["rank=0 step=12 kind=kill"])"})));
  CHECK(killed.exit == -SIGKILL);
  const auto before = summary("0");
  CHECK(before.at("outcome") == "unfinished");
  succeed(alone(place, words));
  const auto after = summary("0");
  CHECK(after.at("outcome") == "finished");
  CHECK(after.at("earlier_jobs").at("jobs") == 1);
  CHECK(after.at("earlier_jobs").at("seconds") == before.at("wall_seconds"));
  CHECK_FALSE(summary("1").contains("earlier_jobs"));
}

// Its folder's name has the time of its start.
TEST_CASE("a sweep that a signal has stopped prints the override that continues it") {
  const Workspace place;
  const Words words = {"--multirun", "trainer_config.seed=1,2", "trainer_config.max_epochs=100000"};
  ChildProgram sweep(alone(place, joined(words, {"trainer_config.max_steps=null"})));
  sweep.wait_for("Step 2 | Train", 1, kPatience);
  sweep.signal(SIGTERM);
  sweep.wait_all_gone(kPatience);
  CHECK(sweep.wait_exit(kPatience) == 75);
  const std::string last = sweep.out_lines().back(),
                    next = "Next: the same command continues with ";
  REQUIRE(last.starts_with(next));
  const auto again = succeed(
      alone(place, joined(words, {"trainer_config.max_steps=3", last.substr(next.size())})));
  CHECK_THAT(again.out, Catch::Contains("Resuming training from snapshot"));
}

TEST_CASE("two jobs of a sweep with the same snapshot are refused before the first one trains") {
  const Workspace place;
  const Finished sweep =
      finish(launched(place, 2,
                      {"--multirun", "trainer_config.seed=1,2,3", "hydra.sweep.dir=sweep",
                       "trainer_config.snapshot_path=" + place.snapshot()}));
  CHECK(sweep.exit == 2);
  CHECK(sweep.err.find("jobs 0 and 1 of the sweep share " + place.snapshot()) != std::string::npos);
  CHECK_FALSE(fs::exists(place.snapshot()));
  CHECK_FALSE(fs::exists(place / "sweep"));
}

TEST_CASE("all ranks of a run share one folder, whatever the time says") {
  const Workspace place;
  succeed(launched(place, 2,
                   {"hydra.run.dir=out/${now:%Y}/${now:%H-%M-%S}", "trainer_config.max_steps=2",
                    "hydra.job.name=first"}));
  int folders = 0;
  for (const auto& entry : fs::recursive_directory_iterator(place / "out")) {
    if (entry.path().filename() != ".hydra") continue;
    ++folders;
    CHECK(fs::exists(entry.path().parent_path() / "first.log"));
    CHECK(read_bytes(entry.path() / "config.yaml").find("max_steps: 2") != std::string::npos);
    CHECK(read_bytes(entry.path() / "hydra.yaml").find("name: first") != std::string::npos);
  }
  CHECK(folders == 1);
  CHECK(
      fs::exists(place.snapshot()));  // snapshot_path is relative to where the command was started
}

}  // namespace
}  // namespace ddp::test
