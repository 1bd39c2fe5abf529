// A rank that is killed while others wait for it in the groups of a mesh: those that share layers,
// stages, copies.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

#include "tests/e2e/lone_rank.h"
#include "tests/e2e/saved_state.h"
#include "tests/e2e/sharded_runs.h"
#include "tests/e2e/workers.h"
#include "tests/support/loopback.h"

namespace ddp::test {
namespace {

using Catch::Contains;

constexpr int kRanks = 4;
const Words kTraining = {"gpt_config.n_layer=4",       "gpt_config.n_head=4",
                         "gpt_config.n_embd=64",       "trainer_config.global_batch_size=16",
                         "trainer_config.max_steps=6", "trainer_config.save_every_steps=2"};
const Words kStages = {"distributed_config.pipeline=2"};
const Words kShared = {"distributed_config.tensor=2"};

/// CPU time of a process, in ticks.
long ticks_of(pid_t pid) {
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), stat);
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  std::vector<std::string> words;
  for (std::string word; fields >> word;) words.push_back(word);
  constexpr std::size_t kUser = 11, kSystem = 12;
  return std::stol(words.at(kUser)) + std::stol(words.at(kSystem));
}

/// Until the process computes no more: it waits for another one.
void wait_until_it_waits(pid_t pid) {
  constexpr std::chrono::milliseconds kBetweenLooks{100};
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (long before = -1, now = ticks_of(pid); now != before; now = ticks_of(pid)) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    before = now;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

/// Rank `lost` stops in `phase` of step 4, and is killed when all others wait for it. They must end
/// on their own, each with one line.
void check_peers_leave(const Workspace& place, int lost, const std::string& phase,
                       const Words& words) {
  INFO("rank " << lost << " in " << phase << ", " << nlohmann::json(words).dump());
  const std::string fault =
      "rank=" + std::to_string(lost) + " step=4 phase=" + phase + " kind=stop";
  const Words all = kTraining + words + Words{"trainer_config.fault_plan=['" + fault + "']"};
  const int port = unused_port();
  std::vector<std::unique_ptr<ChildProgram>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<ChildProgram>(lone_rank(place, rank, kRanks, port, all)));
  }
  const auto& killed = ranks[static_cast<std::size_t>(lost)];
  wait_until_stopped(killed->pid());
  for (const auto& rank : ranks) {
    if (rank != killed) wait_until_it_waits(rank->pid());
  }
  killed->signal(SIGKILL);
  const auto then = std::chrono::steady_clock::now();
  for (const auto& rank : ranks) {
    if (rank == killed) continue;
    CHECK(rank->wait_exit(kPatience) == 1);
    rank->wait_all_gone(kPatience);
    INFO(rank->out() << rank->err());
    REQUIRE(errors_of(rank->err()).size() == 1);
    CHECK_THAT(errors_of(rank->err()).front(),
               Contains("lost the connection to another rank") && Contains("which ended first"));
  }
  CHECK(std::chrono::steady_clock::now() - then < std::chrono::seconds(25));  // timeout_s is 30
}

const Words kBySockets = {"distributed_config.backend=gloo"};

void check_lost_rank(const Words& words, int lost, const std::string& phase) {
  const Workspace unbroken, place;
  succeed(launched(unbroken, kRanks, kTraining + words));
  check_peers_leave(place, lost, phase, words);
  succeed(launched(place, kRanks, kTraining + words));
  CHECK(differences(place.snapshot(), unbroken.snapshot()) == Words{});
}

}  // namespace

TEST_CASE("when a rank of a mesh is killed, all that wait for it leave, and the run resumes") {
  check_lost_rank(kStages + kShared, 3, "forward");
}

TEST_CASE("when a rank of any other mesh is killed, the others leave", "[long]") {
  check_lost_rank(kStages + kShared + kBySockets, 0, "backward");
  check_lost_rank(kShared + under("zero3") + kBySockets, 1, "forward");
  check_lost_rank(kShared + under("zero1") + Words{"distributed_config.sequence_parallel=true"}, 2,
                  "backward");
  check_lost_rank(kStages + Words{"distributed_config.pipeline_schedule=gpipe"} + kBySockets, 1,
                  "backward");
}

}  // namespace ddp::test
