#include "launcher/rendezvous/restart_policy.h"

#include <csignal>

#include "launcher/base/restart_rules.h"
#include "launcher/worker_contract.h"

#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

RoundEnd ended(int rank, int code, seconds lived = seconds(1)) { return {rank, {code, 0}, lived}; }

RestartVerdict judge(const RestartRules& rules, const std::vector<RoundEnd>& history) {
  RestartTally tally;
  for (const RoundEnd& end : history) tally.add(rules, end);
  return judge_restart(rules, tally);
}

TEST_CASE("restarts are counted over the whole job") {
  const RestartRules rules{.max_restarts = 2};
  CHECK(judge(rules, {ended(0, 1)}).restart);
  CHECK(judge(rules, {ended(0, 1), ended(0, 1)}).number == 2);
  CHECK_FALSE(judge(rules, {ended(0, 1), ended(0, 1), ended(0, 1)}).restart);
  CHECK_FALSE(judge({}, {ended(0, 1)}).restart);
}

TEST_CASE("a healthy round gives the restarts back, if asked") {
  const RestartRules rules{.max_restarts = 1, .healthy_after = seconds(60)};
  CHECK(judge(rules, {ended(0, 1), ended(0, 1, seconds(61))}).restart);
  CHECK_FALSE(judge(rules, {ended(0, 1, seconds(61)), ended(0, 1), ended(0, 1)}).restart);
}

TEST_CASE("a healthy round has not failed quickly, however short it was") {
  const RestartRules rules{.max_restarts = 1, .healthy_after = milliseconds(500)};
  const RestartVerdict verdict = judge(rules, std::vector<RoundEnd>(50, ended(0, 1)));
  CHECK(verdict.restart);
  CHECK(verdict.delay == seconds(0));
}

TEST_CASE("the first restart is immediate and the delay doubles while rounds fail within 10 s") {
  const RestartRules rules{.max_restarts = 1000};
  std::vector<RoundEnd> history;
  for (const int delay : {0, 1, 2, 4, 8, 16, 32, 60, 60}) {
    const int rank = static_cast<int>(history.size());  // another each time: no crash loop
    history.push_back(ended(rank, 1, seconds(9)));
    CHECK(judge(rules, history).delay == seconds(delay));
  }
  history.push_back(ended(0, 1, seconds(10)));
  CHECK(judge(rules, history).delay == seconds(0));
  history.push_back(ended(0, 1));
  CHECK(judge(rules, history).delay == seconds(0));
}

TEST_CASE("ten equal quick failures in a row are a crash loop") {
  const RestartRules rules{.max_restarts = 100};
  CHECK(judge(rules, std::vector<RoundEnd>(9, ended(3, 1))).restart);
  CHECK(judge(rules, std::vector<RoundEnd>(10, ended(3, 1))).gave_up ==
        "rank 3 failed the same way 10 times in a row, each time within 10 s");
}

TEST_CASE("failures of other ranks, with other codes or after a long round are no crash loop") {
  const RestartRules rules{.max_restarts = 100, .crash_loop = 3};
  CHECK(judge(rules, {ended(0, 1), ended(0, 1)}).restart);
  CHECK_FALSE(judge(rules, {ended(0, 1), ended(0, 1), ended(0, 1)}).restart);
  CHECK(judge(rules, {ended(0, 1), ended(1, 1), ended(0, 1)}).restart);
  CHECK(judge(rules, {ended(0, 1), ended(0, 2), ended(0, 1)}).restart);
  CHECK(judge(rules, {ended(0, 1), ended(0, 1, seconds(11)), ended(0, 1)}).restart);
}

TEST_CASE("a final exit code is not restarted") {
  const RestartRules rules{.max_restarts = 100, .final_codes = {2}};
  CHECK(judge(rules, {ended(0, 2)}).gave_up == "exit code 2 is final by --restart-policy");
  CHECK(judge(rules, {ended(0, 1)}).restart);
}

TEST_CASE("a usage error is final where the program is known, unless it is to be retried") {
  RestartRules rules{.max_restarts = 100, .program = WorkerProgram::kTrainer};
  CHECK(judge(rules, {ended(0, 2)}).gave_up == "exit code 2 of trainer: would fail again");
  CHECK(judge(rules, {ended(0, 1)}).restart);
  CHECK(judge(rules, {{0, {0, 2}, seconds(1)}}).restart);  // SIGINT
  rules.retry_codes = {2};
  CHECK(judge(rules, {ended(0, 2)}).restart);
  CHECK(judge({.max_restarts = 100}, {ended(0, 2)}).restart);
}

TEST_CASE("a worker whose heartbeats tell of progress is in no crash loop") {
  const RestartRules rules{.max_restarts = 100, .crash_loop = 2};
  const auto at_step = [](const char* words) { return RoundEnd{0, {1, 0}, seconds(1), words}; };
  CHECK(judge(rules, {at_step("step=1"), at_step("step=2")}).restart);
  CHECK_FALSE(judge(rules, {at_step("step=2"), at_step("step=2")}).restart);
}

TEST_CASE("the restart policy says which failures are worth a restart unless codes say otherwise") {
  const RestartRules on_crash{.policy = RestartPolicy::kOnCrash,
                              .max_restarts = 5,
                              .final_codes = {7},
                              .retry_codes = {3, 7}};
  CHECK_FALSE(judge(on_crash, {ended(0, 1)}).restart);
  CHECK_THAT(judge(on_crash, {ended(0, 1)}).gave_up, Catch::Contains("is not a crash"));
  CHECK(judge(on_crash, {ended(0, 3)}).restart);
  CHECK_FALSE(judge(on_crash, {ended(0, 7)}).restart);
  CHECK(judge(on_crash, {{0, {0, 9}, seconds(1)}}).restart);
  CHECK(judge(on_crash, {ended(0, 124)}).restart);
  CHECK(judge(on_crash, {ended(0, 139)}).restart);
  const RestartRules never{.policy = RestartPolicy::kNever, .max_restarts = 5};
  CHECK_FALSE(judge(never, {{0, {0, 9}, seconds(1)}}).restart);
}

TEST_CASE("exit code 255 is a program's exit(-1), no death by a signal") {
  const RestartRules on_crash{.policy = RestartPolicy::kOnCrash, .max_restarts = 5};
  CHECK_FALSE(judge(on_crash, {ended(0, 255)}).restart);
  CHECK_FALSE(judge(on_crash, {ended(0, 128 + 65)}).restart);
  CHECK(judge(on_crash, {ended(0, 128 + 64)}).restart);  // the last signal there is
  CHECK(judge(on_crash, {ended(0, 129)}).restart);
  CHECK_FALSE(judge(on_crash, {ended(0, 128)}).restart);
}

TEST_CASE("2, 75 and 76 are trainer's: from another program they are failures like all others") {
  const RestartRules rules{.max_restarts = 5};
  for (const int code : {kExitUsage, kExitPreempted, kExitFinal}) {
    CHECK(judge(rules, {ended(0, code)}).restart);
    CHECK(meaning_of(WorkerProgram::kOther, {code, 0}) == ExitMeaning::kNone);
    CHECK(meaning_of(WorkerProgram::kTrainer, {code, 0}) != ExitMeaning::kNone);
    CHECK(meaning_of(WorkerProgram::kTrainer, {code, SIGKILL}) == ExitMeaning::kNone);
    RestartRules final = rules;
    final.final_codes = {code};
    CHECK_FALSE(judge(final, {ended(0, code)}).restart);
  }
  CHECK_FALSE(is_preemption(rules, {kExitPreempted, 0}));
  CHECK(judge({.max_restarts = 5, .program = WorkerProgram::kTrainer}, {ended(0, 76)}).gave_up ==
        "exit code 76 of trainer: would fail again");
}

TEST_CASE("a preempted worker is not restarted unless its code is to be retried") {
  RestartRules rules{.max_restarts = 5, .program = WorkerProgram::kTrainer};
  CHECK_THAT(judge(rules, {ended(0, 75)}).gave_up, Catch::Contains("preempted, state saved"));
  rules.retry_codes = {75};
  CHECK(judge(rules, {ended(0, 75)}).restart);
}

}  // namespace
}  // namespace ddp::launch
