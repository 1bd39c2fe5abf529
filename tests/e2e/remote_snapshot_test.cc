// Training whose snapshots live in an object store, against a real server.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "tests/e2e/unbroken.h"
#include "tests/e2e/workers.h"
#include "tests/trainer/storage/store_server.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using train::test::StoreServer;

ChildOptions stored(const Workspace& place, const StoreServer& server, Words overrides = {}) {
  overrides.emplace_back("trainer_config.snapshot_path=" + server.folder("runs/7/snapshot.pt"));
  overrides.emplace_back("trainer_config.snapshot_cache=cache");
  auto options = launched(place, 2, overrides);
  for (const auto& [name, value] : server.environment()) options.set[name] = value;
  return options;
}

std::string local_copy(const Workspace& place) {
  return place / "cache/s3/bucket/runs/7/snapshot.pt";
}

const Words kSharded = {"distributed_config.strategy=zero1", "gpt_config.n_embd=144"};

std::set<std::string> objects_in(const StoreServer& server) {
  std::set<std::string> found;
  for (const auto& entry : server.open("runs/7")->list()) found.insert(entry.name);
  return found;
}

TEST_CASE("a machine without any files goes on from the store and ends as the unbroken run") {
  const StoreServer server("s3");
  const Workspace place;
  const Unbroken unbroken(2);
  const auto first = succeed(stored(place, server, {"trainer_config.max_steps=20"}));
  CHECK_THAT(first.out, Contains("All snapshots are in s3://bucket/runs/7"));
  std::filesystem::remove_all(place / "cache");
  const auto second = succeed(stored(place, server));
  INFO(second.out << second.err);
  CHECK_THAT(second.out, Contains("Fetching s3://bucket/runs/7/snapshot.pt.step-20"));
  CHECK(order_of_steps(second.out) == range_of(21, 40));
  CHECK(differences(unbroken.snapshot(), local_copy(place)) == Words{});
}

TEST_CASE("a sharded run resumes from either store on a machine without any files", "[long]") {
  const std::string kind = GENERATE(as<std::string>(), "s3", "gs");
  const StoreServer server(kind);
  const Workspace unbroken, place;
  const std::string stored_at_20 = server.folder("runs/7/snapshot.pt.step-20");
  succeed(launched(unbroken, 2, kSharded));
  succeed(stored(place, server, joined(kSharded, {"trainer_config.max_steps=20"})));
  for (const char* shard : {"snapshot.pt.step-20.0-of-2", "snapshot.pt.step-20.1-of-2"})
    CHECK(objects_in(server).contains(shard));
  std::filesystem::remove_all(place / "cache");
  auto inspected = trainer(place, {"inspect", stored_at_20, "--json"});
  for (const auto& [name, value] : server.environment()) inspected.set[name] = value;
  CHECK(nlohmann::json::parse(succeed(inspected).out).at("shards").size() == 2);
  inspected.set["TMPDIR"] = place / "missing";
  CHECK_THAT(finish(inspected).err,
             Contains("missing: cannot create a folder for the snapshot: ") &&
                 Contains("; set TMPDIR to a folder with room"));
  const auto second = succeed(stored(place, server, kSharded));
  INFO(second.out << second.err);
  CHECK_THAT(second.out, Contains("Fetching " + stored_at_20));
  CHECK(order_of_steps(second.out) == range_of(21, 40));
  CHECK(differences(unbroken.snapshot(),
                    place / ("cache/" + kind + "/bucket/runs/7/snapshot.pt")) == Words{});
}

/// `spoil` has one of the shards in the store.
void check_skips_a_snapshot(
    const std::function<void(const Workspace&, train::RemoteFolder&)>& spoil) {
  const StoreServer server("s3");
  const Workspace place;
  succeed(stored(place, server, joined(kSharded, {"trainer_config.max_steps=20"})));
  spoil(place, *server.open("runs/7"));
  std::filesystem::remove_all(place / "cache");
  const auto next =
      succeed(stored(place, server, joined(kSharded, {"trainer_config.max_steps=22"})));
  INFO(next.out << next.err);
  CHECK_THAT(next.err, Contains("skipping s3://bucket/runs/7/snapshot.pt.step-20: ") &&
                           Contains("snapshot.pt.step-20.1-of-2"));
  CHECK(order_of_steps(next.out) == range_of(16, 22));
}

TEST_CASE("a snapshot that lacks a shard in the store is skipped for the one before it") {
  check_skips_a_snapshot([](const Workspace&, train::RemoteFolder& store) {
    store.remove("snapshot.pt.step-20.1-of-2");
  });
}

TEST_CASE("a snapshot with a damaged shard in the store is skipped for the one before it",
          "[long]") {
  check_skips_a_snapshot([](const Workspace& place, train::RemoteFolder& store) {
    store.upload(place.write("bad", "bad"), "snapshot.pt.step-20.1-of-2");
  });
}

TEST_CASE("an object of another run, or a damaged one, does not replace what is here") {
  const StoreServer server("s3");
  const Workspace place, other;
  succeed(stored(place, server, {"trainer_config.max_steps=20"}));
  SECTION("of another run, on a fresh machine") {
    succeed(alone(other, {"trainer_config.max_steps=2", "optimizer_config.learning_rate=0.1"}));
    std::filesystem::remove_all(place / "cache");
  }
  SECTION("damaged, beside a good local copy") { other.write("snapshot.pt", "damaged"); }
  server.open("runs/7")->upload(other.snapshot(), "snapshot.pt.step-90");
  const auto next = succeed(stored(place, server, {"trainer_config.max_steps=22"}));
  INFO(next.out << next.err);
  CHECK_THAT(next.err, Contains("skipping s3://bucket/runs/7/snapshot.pt.step-90: "));
  CHECK(order_of_steps(next.out) == range_of(21, 22));
}

TEST_CASE("a fresh machine does not send back what it has fetched") {
  const StoreServer server("s3");
  const Workspace place;
  succeed(stored(place, server, {"trainer_config.max_steps=20"}));
  std::filesystem::remove_all(place / "cache");
  const auto next = succeed(stored(place, server, {"trainer_config.max_steps=20"}));
  INFO(next.out << next.err);
  CHECK_THAT(next.out, Contains("Fetching s3://bucket/runs/7/snapshot.pt.step-20"));
  CHECK_THAT(next.out, Contains("All snapshots are in s3://bucket/runs/7 (1 object, "));
}

TEST_CASE("a fresh machine leaves the best and the last ones of the store alone") {
  const StoreServer server("s3");
  const Workspace place;
  succeed(stored(place, server, {"trainer_config.max_steps=20"}));
  const auto names = [&] { return objects_in(server); };
  REQUIRE(names().contains("snapshot.pt.step-20"));
  const auto before = names();
  std::filesystem::remove_all(place / "cache");
  const auto next = succeed(
      stored(place, server, {"trainer_config.max_steps=21", "optimizer_config.learning_rate=10"}));
  INFO(next.out << next.err);
  CHECK(names().contains("snapshot.pt.step-21"));
  const auto after = names();
  CHECK(std::includes(after.begin(), after.end(), before.begin(), before.end()));
  std::filesystem::remove_all(place / "cache");
  const auto third = succeed(stored(place, server, {"trainer_config.max_steps=22"}));
  CHECK_THAT(third.out,
             Contains("Fetching the best snapshot, s3://bucket/runs/7/snapshot.pt.step-20"));
  CHECK_THAT(third.out, Contains("Best snapshot: " + local_copy(place) + ".step-20"));
}

// The ranks' own patience is 4 s: rank 0 must not keep them waiting for the store.
TEST_CASE("a store that dies during a run costs nothing, and the next run sends what is missing",
          "[waits]") {
  StoreServer server("s3");
  const Workspace place;
  const std::string patience = "distributed_config.timeout_s=4";
  {
    ChildProgram job(
        stored(place, server,
               {patience,
                "trainer_config.fault_plan=['rank=0 step=13 phase=data kind=slow value=1500']"}));
    job.wait_for("| Step 12 ", 1, kPatience);
    server.kill();
    job.wait_all_gone(kPatience);
    INFO(job.out() << job.err());
    CHECK(job.wait_exit(kPatience) == 0);
    CHECK_THAT(job.err(), Contains("snapshots are kept here and uploaded later") &&
                              Contains("not in s3://bucket/runs/7 yet"));
  }
  server.come_back();
  const auto next = succeed(stored(place, server, {patience}));
  CHECK_THAT(next.out, Contains("Nothing to train") && Contains("All snapshots are in s3://"));
  std::filesystem::remove_all(place / "cache");
  const auto elsewhere = succeed(stored(place, server, {"trainer_config.max_steps=41"}));
  CHECK_THAT(elsewhere.out, Contains("Fetching s3://bucket/runs/7/snapshot.pt.step-40"));
}

}  // namespace
}  // namespace ddp::test
