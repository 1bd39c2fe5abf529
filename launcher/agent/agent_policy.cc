#include "launcher/agent/agent_policy.h"

namespace ddp::launch {
namespace {

Action when_all_ended(const Situation& now) {
  if (now.guardian_gone || now.interrupted) return Action::kInterrupt;
  if (now.over) return now.failed ? Action::kFail : Action::kFinish;
  if (now.suspended) return Action::kWait;
  if (now.phase == Phase::kChecking) return Action::kWait;
  if (now.phase == Phase::kJoining) return now.round_ready ? Action::kStart : Action::kWait;
  if (!now.may_restart) return Action::kWait;
  if (now.phase == Phase::kDelaying) return now.deadline_over ? Action::kRestart : Action::kWait;
  return now.delay ? Action::kDelay : Action::kRestart;
}

}  // namespace

Action decide(const Situation& now) {
  const bool at_once = now.hurry || now.guardian_gone;
  if (now.running == 0) return now.lingering && !at_once ? Action::kWait : when_all_ended(now);
  switch (now.phase) {
    case Phase::kRunning:
      if (at_once) return Action::kKill;
      if (now.interrupted) return Action::kStop;
      if (now.dumping) return Action::kDumpStacks;
      if (now.preempted) return Action::kLeave;
      return now.failed ? Action::kStop : Action::kWait;
    case Phase::kLeaving:
      if (at_once) return Action::kKill;
      return !now.preempted || now.interrupted || now.deadline_over ? Action::kStop : Action::kWait;
    case Phase::kDumping:
      if (at_once) return Action::kKill;
      return !now.dumping || now.interrupted || now.deadline_over ? Action::kStop : Action::kWait;
    case Phase::kStopping:
      return at_once || now.deadline_over ? Action::kKill : Action::kWait;
    case Phase::kKilling:
      return now.deadline_over ? Action::kAbandon : Action::kWait;
    case Phase::kChecking:
    case Phase::kJoining:
    case Phase::kLingering:
    case Phase::kReported:
    case Phase::kDelaying:
      break;  // nothing runs then
  }
  return Action::kWait;
}

}  // namespace ddp::launch
