#include "launcher/agent/agent_policy.h"

#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

struct PolicyRow {
  const char* when;
  Situation situation;
  Action then;
};

const PolicyRow kTable[] = {
    {"all is well", {.running = 2}, Action::Wait},
    {"some have succeeded", {.running = 1}, Action::Wait},
    {"all here have succeeded, the others have not", {.running = 0}, Action::Wait},
    {"all have succeeded", {.running = 0, .over = true}, Action::Finish},
    {"one failed", {.running = 1, .failed = true}, Action::Stop},
    {"one failed, restarts left",
     {.running = 1, .failed = true, .may_restart = true},
     Action::Stop},
    {"the last one failed", {.running = 0, .failed = true, .over = true}, Action::Fail},
    {"the last one here failed, others are running", {.running = 0, .failed = true}, Action::Wait},
    {"the last one failed, restarts left",
     {.running = 0, .failed = true, .may_restart = true},
     Action::Restart},
    {"joining", {.phase = Phase::Joining}, Action::Wait},
    {"the round is agreed on", {.phase = Phase::Joining, .round_ready = true}, Action::Start},
    {"the round is agreed on, but a signal came",
     {.phase = Phase::Joining, .interrupted = true, .round_ready = true},
     Action::Interrupt},
    {"the job is over before this node was needed",
     {.phase = Phase::Joining, .over = true},
     Action::Finish},
    {"stopping", {.phase = Phase::Stopping, .running = 1, .failed = true}, Action::Wait},
    {"stopped",
     {.phase = Phase::Stopping, .running = 0, .failed = true, .over = true},
     Action::Fail},
    {"stopped, restarts left",
     {.phase = Phase::Stopping, .running = 0, .failed = true, .may_restart = true},
     Action::Restart},
    {"the grace is over",
     {.phase = Phase::Stopping, .running = 1, .failed = true, .deadline_over = true},
     Action::Kill},
    {"the grace is over, but all have stopped",
     {.phase = Phase::Stopping, .running = 0, .failed = true, .deadline_over = true, .over = true},
     Action::Fail},
    {"killing", {.phase = Phase::Killing, .running = 1, .failed = true}, Action::Wait},
    {"killed, restarts left",
     {.phase = Phase::Killing, .running = 0, .failed = true, .may_restart = true},
     Action::Restart},
    {"it survives SIGKILL",
     {.phase = Phase::Killing,
      .running = 1,
      .failed = true,
      .deadline_over = true,
      .may_restart = true},
     Action::Abandon},
    {"a delay is wanted",
     {.running = 0, .failed = true, .may_restart = true, .delay = true},
     Action::Delay},
    {"delaying",
     {.phase = Phase::Delaying, .running = 0, .failed = true, .may_restart = true, .delay = true},
     Action::Wait},
    {"the delay is over",
     {.phase = Phase::Delaying,
      .running = 0,
      .failed = true,
      .deadline_over = true,
      .may_restart = true,
      .delay = true},
     Action::Restart},
    {"a signal came while delaying",
     {.phase = Phase::Delaying,
      .running = 0,
      .failed = true,
      .interrupted = true,
      .may_restart = true,
      .delay = true},
     Action::Interrupt},
    {"a signal came", {.running = 2, .interrupted = true}, Action::Stop},
    {"a signal came while stopping",
     {.phase = Phase::Stopping, .running = 2, .failed = true, .interrupted = true},
     Action::Wait},
    {"a signal came and a worker failed, restarts left",
     {.phase = Phase::Stopping,
      .running = 0,
      .failed = true,
      .interrupted = true,
      .may_restart = true},
     Action::Interrupt},
    {"a signal came, all have stopped well",
     {.phase = Phase::Stopping, .running = 0, .interrupted = true},
     Action::Interrupt},
    {"the signal came again",
     {.phase = Phase::Stopping, .running = 2, .interrupted = true, .hurry = true},
     Action::Kill},
    {"the signal came twice at once",
     {.running = 2, .interrupted = true, .hurry = true},
     Action::Kill},
    {"the signal came again while killing",
     {.phase = Phase::Killing, .running = 2, .interrupted = true, .hurry = true},
     Action::Wait},
    {"the launcher is dead",
     {.running = 2, .guardian_gone = true, .may_restart = true},
     Action::Kill},
    {"the launcher is dead while stopping",
     {.phase = Phase::Stopping, .running = 2, .guardian_gone = true},
     Action::Kill},
    {"the launcher is dead and so are all workers",
     {.phase = Phase::Killing,
      .running = 0,
      .failed = true,
      .guardian_gone = true,
      .may_restart = true},
     Action::Interrupt},
};

TEST_CASE("the agent's decisions are those of the table") {
  for (const PolicyRow& row : kTable) {
    INFO(row.when);
    CHECK(decide(row.situation) == row.then);
  }
}

}  // namespace
}  // namespace ddp::launch
