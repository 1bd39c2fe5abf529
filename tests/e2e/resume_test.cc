// A killed run resumes bit for bit.
#include <signal.h>

#include <algorithm>

#include "tests/support/catch.h"

#include "tests/e2e/faults.h"
#include "tests/e2e/saved_state.h"
#include "tests/e2e/unbroken.h"
#include "tests/e2e/workers.h"

namespace ddp::test {
namespace {

constexpr int kSteps = 40;  // max_steps of the workspace's configuration
const Words kRestarts = {"--max_restarts=3"};

void check_equal(const Unbroken& unbroken, const Workspace& place) {
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
  CHECK(content_sha256(unbroken) == content_sha256(place));
  // Repeated steps too: one text for each step.
  const Steps steps = steps_of(unbroken.out);
  CHECK(steps_of(log_of(place)) == steps);
  CHECK(steps.size() == kSteps);
}

/// Kills a random rank some steps after step 20. False when the job was done before.
bool run_with_a_kill(const Workspace& place, int ranks, Dice& dice, Finished& finished) {
  const int rank = dice.roll(0, ranks - 1);
  const int step = dice.roll(20, 35);
  ChildProgram job(launched(place, ranks, {}, kRestarts));
  job.wait_for("Model: ", 1, kPatience);
  const pid_t victim = worker_pid(place, rank);
  job.wait_for("Step " + std::to_string(step) + " | Train", 1, kPatience);
  const bool killed = victim != 0 && ::kill(victim, SIGKILL) == 0;
  job.wait_all_gone(kPatience);
  finished.exit = job.wait_exit(kPatience);
  finished.out = job.out();
  finished.err = job.err();
  INFO(finished.out << finished.err);
  CHECK(finished.exit == 0);
  return killed && finished.err.find("restart 1 of 3") != std::string::npos;
}

void kill_and_compare(int ranks, int rounds) {
  Dice dice;
  const Unbroken unbroken(ranks);
  int restarted = 0;
  // A kill that comes when the job is done proves nothing: such a round is played again.
  for (int round = 0; round < 3 * rounds && restarted < rounds; ++round) {
    const Workspace place;
    Finished finished;
    if (run_with_a_kill(place, ranks, dice, finished)) {
      ++restarted;
      CHECK_THAT(finished.out, Catch::Contains("Resuming training from snapshot"));
    }
    INFO(finished.out << finished.err);
    check_equal(unbroken, place);
  }
  CHECK(restarted == rounds);
}

TEST_CASE("a job of one or two ranks that is killed at random moments ends as the unbroken one",
          "[long]") {
  kill_and_compare(1, 2);
  kill_and_compare(2, 3);
}

// With three ranks the layout of DDP's buckets decides the order of sums: it must be the same in a
// resumed run.
TEST_CASE("a job of three ranks, one of them killed, ends as the unbroken one", "[long]") {
  kill_and_compare(3, 1);
}

TEST_CASE("a killed process without a launcher goes on when it is started again") {
  const Workspace broken;
  const Unbroken unbroken(0);
  {
    ChildProgram victim(alone(broken));
    victim.wait_for("Step 23 | Train", 1, kPatience);
    victim.signal(SIGKILL);
    victim.wait_all_gone(kPatience);
  }
  succeed(alone(broken));
  CHECK(differences(unbroken.snapshot(), broken.snapshot()) == Words{});
  CHECK(steps_of(log_of(broken)) == steps_of(unbroken.out));
}

/// A moment within a save, seen from outside.
struct Moment {
  const char* what;
  std::uint32_t mask;
  const char* name;  // part of the file's name
};

constexpr Moment kMoments[] = {
    {"the temporary file appears", IN_CREATE, ".tmp."},
    {"the temporary file is being written", IN_MODIFY, ".tmp."},
    {"the good snapshot gets its second name", IN_CREATE, ".link"},
    {"the second name becomes that of the older snapshot", IN_MOVED_TO, ".step-"},
    {"the new snapshot takes its name", IN_MOVED_TO, "snapshot.pt"},
};

bool is_at(const Moment& moment, const FileEvent& event) {
  const bool whole_name = std::string(moment.name) == "snapshot.pt";
  return (event.mask & moment.mask) != 0 &&
         (whole_name ? event.name == moment.name
                     : event.name.find(moment.name) != std::string::npos);
}

/// Kills the rank at the moment of the second save after the attempt's start. False when the job
/// ended before.
bool kill_at(const Moment& moment, int rank, const Workspace& place, FolderWatch& watch) {
  const pid_t victim = worker_pid(place, rank);
  watch.forget_past_events();
  const auto here = [&](const FileEvent& event) { return is_at(moment, event); };
  for (int save = 0; save < 2; ++save) {
    if (!watch.wait_for(here, kPatience)) return false;
  }
  return victim != 0 && ::kill(victim, SIGKILL) == 0;
}

void kill_again_and_again(int ranks) {
  Dice dice;
  Words slow;  // in each attempt: the job must not end before it is killed
  for (std::size_t attempt = 0; attempt <= std::size(kMoments); ++attempt)
    slow.push_back("step=1 kind=slow value=60 attempt=" + std::to_string(attempt));
  const Words often = {"trainer_config.save_every_steps=1", plan_of(slow)};
  const Workspace place;
  FolderWatch watch(place.path());
  ChildProgram job(launched(place, ranks, often, {"--max_restarts=20", "--healthy-after=0.01"}));
  int kills = 0;
  for (const auto& moment : kMoments) {
    job.wait_for("Model: ", kills + 1, kPatience);
    INFO("kill " << kills << " of " << ranks << " ranks: " << moment.what << "\n"
                 << job.out() << job.err());
    REQUIRE(kill_at(moment, dice.roll(0, 2) == 0 ? ranks - 1 : 0, place, watch));
    ++kills;
  }
  job.wait_all_gone(kPatience);
  INFO(job.out() << job.err());
  REQUIRE(job.wait_exit(kPatience) == 0);
  const auto said = lines_of(job.err());
  CHECK(kills == std::count_if(said.begin(), said.end(), [](const std::string& line) {
          return line.find("; restart ") != std::string::npos;
        }));
  CHECK(is_whole(place.older(kSteps - 1)));
  check_equal(Unbroken(ranks), place);
}

TEST_CASE(
    "a job of one rank that is killed again and again while it saves ends as the unbroken one",
    "[long]") {
  kill_again_and_again(1);
}

TEST_CASE(
    "a job of two ranks that is killed again and again while it saves ends as the unbroken one") {
  kill_again_and_again(2);
}

TEST_CASE("what a killed save left behind is gone after the next start") {
  const Workspace place;
  const auto first = trainer(place, {"--version"});
  ChildProgram killed_saver(first);
  killed_saver.wait_exit(kPatience);
  const std::string left_behind = "snapshot.pt.tmp." + std::to_string(killed_saver.pid());
  place.write(left_behind, "half a snapshot");
  place.write(left_behind + ".link", "its second name");
  succeed(alone(place, {"trainer_config.max_steps=2"}));
  CHECK(place.new_files() == std::set<std::string>{"snapshot.pt"});
}

}  // namespace
}  // namespace ddp::test
