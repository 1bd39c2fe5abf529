// Snapshots in which every rank writes a shard: saved under one strategy, read under any.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>
#include "tests/support/catch.h"

#include <nlohmann/json.hpp>

#include "tests/e2e/faults.h"
#include "tests/e2e/sharded_runs.h"
#include "tests/e2e/workers.h"

namespace ddp::test {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

const Words kSavedModel = kWideModel + Words{"trainer_config.ema_decay=0.9"};

Words shards(const std::string& value) { return {"trainer_config.snapshot_shards=" + value}; }
Words faults_of(const Words& faults) { return {plan_of(faults)}; }

/// Files of shards in the folder.
std::set<std::string> shard_files(const Workspace& place) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(place.path())) {
    const std::string name = entry.path().filename().string();
    if (name.find("-of-") != std::string::npos) names.insert(name);
  }
  return names;
}

/// Shards of the newest snapshot and of those before it.
std::set<std::string> needed_shards(const Workspace& place) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(place.path())) {
    const std::string name = entry.path().filename().string();
    const bool index = name == "snapshot.pt" || (name.starts_with("snapshot.pt.step-") &&
                                                 name.find("-of-") == std::string::npos);
    if (!index) continue;
    for (const auto& shard : shards_of(entry.path().string()))
      names.insert(fs::path(shard).filename().string());
  }
  return names;
}

Finished run_until(const Workspace& place, const Divided& way, int steps, const Words& more = {}) {
  // One global batch for all.
  return succeed(launched(place, way.ranks,
                          kSavedModel + way.words + more +
                              Words{"trainer_config.global_batch_size=16",
                                    "trainer_config.max_steps=" + std::to_string(steps)}));
}

}  // namespace

TEST_CASE("ranks that hold shards save them, and each file has an equal part of the state") {
  const Workspace place, one;
  const auto run = run_until(place, {3, under("zero1")}, 3);
  CHECK_THAT(run.out, Contains("Snapshot saved at epoch 1, step 3"));
  CHECK(shard_files(place) == std::set<std::string>{"snapshot.pt.step-3.0-of-3",
                                                    "snapshot.pt.step-3.1-of-3",
                                                    "snapshot.pt.step-3.2-of-3"});
  const auto report = inspect(place, place.snapshot());
  std::uintmax_t least = ~std::uintmax_t{0}, most = 0;
  for (const auto& shard : report.at("shards")) {
    const auto bytes = shard.at("bytes").get<std::uintmax_t>();
    CHECK(bytes == fs::file_size(place / shard.at("file").get<std::string>()));
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  CHECK(report.at("shards").size() == 3);
  CHECK(fs::file_size(place.snapshot()) < least / 4);
  run_until(one, {3, under("zero1")}, 3, shards("false"));
  CHECK(shard_files(one).empty());
  CHECK(inspect(one, one.snapshot()).at("shards").empty());
  CHECK(differences(place.snapshot(), one.snapshot()) == Words{});
  CHECK(content_sha256(place) == content_sha256(one));
  CHECK(inspect(one, one.snapshot()).at("tensors") == report.at("tensors"));
}

TEST_CASE("under ddp every rank writes a part if that is wanted, without any rank's whole copy") {
  const Workspace whole, parts;
  succeed(launched(whole, 2, kSavedModel));
  succeed(launched(parts, 2, kSavedModel + shards("true")));
  CHECK(shards_of(parts.snapshot()).size() == 2);
  CHECK(shards_of(parts.older(3)).size() == 2);
  CHECK(differences(parts.snapshot(), whole.snapshot()) == Words{});
  CHECK(differences(parts.older(3), whole.older(3)) == Words{});
}

namespace {

struct SaveKill {
  std::string phase;
  int rank;  // the last two phases are rank 0's alone
};

void check_kills_while_saving(const std::vector<SaveKill>& kills) {
  const Words options = kSavedModel + under("zero1") + Words{"trainer_config.max_steps=9"};
  const Workspace unbroken;
  succeed(launched(unbroken, 2, options));
  for (const auto& [phase, rank] : kills) {
    INFO(phase << " on rank " << rank);
    const Workspace killed;
    const auto run = succeed(launched(
        killed, 2,
        options +
            faults_of({"rank=" + std::to_string(rank) + " step=6 phase=" + phase + " kind=kill"}),
        {"--max_restarts=3", "--healthy-after=0.01"}));
    CHECK_THAT(run.out, Contains("Resuming training from snapshot"));
    CHECK_THAT(run.out,
               Contains(phase == "published" ? "at epoch 1, step 6" : "at epoch 1, step 3"));
    CHECK(differences(killed.snapshot(), unbroken.snapshot()) == Words{});
    CHECK(shard_files(killed) == needed_shards(killed));
  }
}

}  // namespace

TEST_CASE("a kill while ranks save shards leaves the snapshot before it, and no orphan") {
  check_kills_while_saving({{"writing", 1}, {"committing", 0}, {"published", 0}});
}

TEST_CASE("a kill in any phase of a sharded save leaves the snapshot before it, on any rank",
          "[long]") {
  check_kills_while_saving(
      {{"staging", 0}, {"staging", 1}, {"writing", 0}, {"rename", 0}, {"rename", 1}});
}

// Rank 1 never writes its shard of step 6, and lives until step 8. Until rank 0 has written its own
// shard, rank 1 is stopped in step 7, in which the ranks vote.
TEST_CASE("a snapshot does not count before the last rank has written its shard") {
  const Words options = kSavedModel + under("zero1") + Words{"trainer_config.max_steps=9"};
  const Workspace unbroken, place;
  succeed(launched(unbroken, 2, options));
  ChildProgram job(launched(
      place, 2,
      options + Words{"distributed_config.hang_timeout_s=0"} +
          faults_of({"rank=1 step=6 phase=writing kind=hang", "rank=1 step=7 phase=data kind=stop",
                     "rank=1 step=8 phase=data kind=kill"}),
      {"--max_restarts=1"}));
  wait_for_file(place / "snapshot.pt.step-6.0-of-2");
  const pid_t rank_1 = worker_pid(place, 1);
  wait_until_stopped(rank_1);
  ::kill(rank_1, SIGCONT);
  job.wait_all_gone(kPatience);
  INFO(job.out() << job.err());
  CHECK(job.wait_exit(kPatience) == 0);
  CHECK_THAT(job.out(), Contains("at epoch 1, step 3"));
  CHECK_THAT(job.err(), Contains("restart 1 of 1") && !Contains("cannot save the snapshot") &&
                            !Contains("damaged snapshot"));
  CHECK(differences(place.snapshot(), unbroken.snapshot()) == Words{});
  CHECK(shard_files(place) == needed_shards(place));
}

TEST_CASE("kills at random moments of a sharded run cost no bit of what it learns", "[long]") {
  const Words options = kSavedModel + under("zero2") +
                        Words{"trainer_config.max_steps=40", "trainer_config.save_every_steps=null",
                              "trainer_config.snapshot_every=2"};
  const Workspace unbroken, killed;
  succeed(launched(unbroken, 2, options));
  constexpr int kKills = 6;
  std::mt19937 random(20261124);
  Words faults;
  const Words phases = {"forward", "backward", "optimizer", "staging", "writing", "rename"};
  for (int attempt = 0; attempt < kKills; ++attempt) {
    const auto any = [&](int low, int high) {
      return std::to_string(std::uniform_int_distribution<int>(low, high)(random));
    };
    faults.push_back("rank=" + any(0, 1) + " step=" + std::to_string(2 * std::stoi(any(2, 18))) +
                     " phase=" + phases[static_cast<std::size_t>(std::stoi(any(0, 5)))] +
                     " kind=kill attempt=" + std::to_string(attempt));
  }
  INFO(nlohmann::json(faults).dump());
  succeed(launched(killed, 2, options + faults_of(faults),
                   {"--max_restarts=20", "--healthy-after=0.01"}));
  CHECK(differences(killed.snapshot(), unbroken.snapshot()) == Words{});
  CHECK(shard_files(killed) == needed_shards(killed));
}

TEST_CASE("a full disk on one rank costs one snapshot and is named, and nothing is lost") {
  const Words options = kSavedModel + under("zero1") + Words{"trainer_config.max_steps=9"};
  const Workspace unbroken, place;
  succeed(launched(unbroken, 2, options));
  const auto run =
      succeed(launched(place, 2, options + faults_of({"rank=1 step=6 kind=disk_full"})));
  CHECK_THAT(run.err, Contains("cannot save the snapshot of step 6: rank 1: cannot write ") &&
                          Contains("No space left on device (injected); training continues, the "
                                   "last good one is kept"));
  CHECK(differences(place.snapshot(), unbroken.snapshot()) == Words{});
  CHECK(shard_files(place) == needed_shards(place));
}

TEST_CASE("a shard that is missing is named, and the run resumes from the snapshot before") {
  const Workspace place;
  run_until(place, {2, under("zero1")}, 6);
  fs::remove(place / "snapshot.pt.step-6.1-of-2");
  const auto refused = finish(trainer(place, {"inspect", "snapshot.pt"}));
  CHECK(refused.exit != 0);
  CHECK(errors_of(refused.err).size() == 1);
  CHECK_THAT(refused.err, Contains("snapshot.pt.step-6.1-of-2") && Contains("is missing"));
  const auto run = run_until(place, {2, under("zero1")}, 6);
  CHECK_THAT(run.err, Contains("damaged snapshot: ") && Contains("falling back to the previous"));
  CHECK_THAT(run.out, Contains("at epoch 1, step 3"));
  CHECK(shards_of(place.snapshot()).size() == 2);
}

TEST_CASE("two starts of one sharded run: the later one wins, and its shards stay", "[long]") {
  const Words options = kSavedModel + under("zero1");
  const Workspace unbroken, place;
  succeed(launched(unbroken, 2, options + Words{"trainer_config.max_steps=66"}));
  FolderWatch watch(place.path());
  ChildProgram suspended(launched(
      place, 2,
      options + Words{"trainer_config.max_steps=100000", "distributed_config.hang_timeout_s=0"} +
          faults_of({"rank=1 step=60 phase=optimizer kind=stop"}),
      {"--max_restarts=0"}));
  REQUIRE(watch.wait_for([](const FileEvent& event) { return event.name == "snapshot.pt.step-51"; },
                         kPatience));
  const pid_t stopped = worker_pid(place, 1);
  REQUIRE(stopped != 0);
  wait_until_stopped(stopped);
  const auto later = succeed(launched(place, 2, options + Words{"trainer_config.max_steps=66"}));
  ::kill(stopped, SIGCONT);
  suspended.wait_all_gone(kPatience);
  CHECK(suspended.wait_exit(kPatience) != 0);
  CHECK_THAT(suspended.err(), Contains("another process continues this run"));
  CHECK(differences(place.snapshot(), unbroken.snapshot()) == Words{});
}

namespace {

void check_copies_in_memory(const Words& way) {
  const Words options =
      kSavedModel + way +
      Words{"trainer_config.max_steps=12", "trainer_config.save_every_steps=1000"};
  const Workspace unbroken, place;
  succeed(launched(unbroken, 2, options));
  const auto run =
      succeed(launched(place, 2,
                       options + Words{"trainer_config.ram_snapshots=true"} +
                           faults_of({"rank=1 step=6 phase=backward kind=kill attempt=0",
                                      "rank=0 step=9 phase=optimizer kind=kill attempt=1"}),
                       {"--max_restarts=20", "--healthy-after=0.01"}));
  CHECK_THAT(run.out, Contains(", step 5\n") || Contains(", step 4\n"));
  CHECK_THAT(run.out, Contains(", step 8\n") || Contains(", step 7\n"));
  CHECK(differences(place.snapshot(), unbroken.snapshot()) == Words{});
}

}  // namespace

TEST_CASE("each rank's copies in memory together are a snapshot: a kill costs at most one step") {
  check_copies_in_memory(under("zero1"));
}

TEST_CASE(
    "copies in memory of ranks that share layers are a snapshot: a kill costs at most one step",
    "[long]") {
  check_copies_in_memory(shared_by(2));
}

TEST_CASE("eval, generate, export and init_from read a sharded snapshot like any other") {
  const Workspace sharded, single;
  run_until(sharded, {2, under("zero1")}, 3);
  run_until(single, {2, under("zero1")}, 3, shards("false"));
  const auto said = [](const Workspace& place, const Words& words) {
    return succeed(trainer(place, words)).out;
  };
  const Words generate = {"generate", "--snapshot", "snapshot.pt", "--prompt", "a", "--greedy"};
  CHECK(said(sharded, generate) == said(single, generate));
  said(sharded, {"export", "--snapshot", "snapshot.pt", "--output", "out"});
  said(single, {"export", "--snapshot", "snapshot.pt", "--output", "out"});
  said(sharded, {"export", "--snapshot", "snapshot.pt", "--output", "one", "--format", "snapshot"});
  CHECK(shards_of(sharded / "one/snapshot.pt").empty());
  CHECK(differences(sharded / "one/snapshot.pt", single.snapshot()) == Words{});
  CHECK(read_bytes(sharded / "out/model.safetensors") ==
        read_bytes(single / "out/model.safetensors"));
}

}  // namespace ddp::test
