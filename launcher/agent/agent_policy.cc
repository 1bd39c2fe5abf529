#include "launcher/agent/agent_policy.h"

namespace ddp::launch {
namespace {

Action when_all_ended(const Situation& now) {
  if (now.guardian_gone || now.interrupted) return Action::Interrupt;
  if (now.over) return now.failed ? Action::Fail : Action::Finish;
  if (now.suspended) return Action::Wait;
  if (now.phase == Phase::Checking) return Action::Wait;
  if (now.phase == Phase::Joining) return now.round_ready ? Action::Start : Action::Wait;
  if (!now.may_restart) return Action::Wait;
  if (now.phase == Phase::Delaying) return now.deadline_over ? Action::Restart : Action::Wait;
  return now.delay ? Action::Delay : Action::Restart;
}

}  // namespace

Action decide(const Situation& now) {
  if (now.running == 0) return when_all_ended(now);
  const bool at_once = now.hurry || now.guardian_gone;
  switch (now.phase) {
    case Phase::Running:
      if (at_once) return Action::Kill;
      if (now.interrupted) return Action::Stop;
      if (now.dumping) return Action::DumpStacks;
      if (now.preempted) return Action::Leave;
      return now.failed ? Action::Stop : Action::Wait;
    case Phase::Leaving:
      if (at_once) return Action::Kill;
      return !now.preempted || now.interrupted || now.deadline_over ? Action::Stop : Action::Wait;
    case Phase::Dumping:
      if (at_once) return Action::Kill;
      return !now.dumping || now.interrupted || now.deadline_over ? Action::Stop : Action::Wait;
    case Phase::Stopping:
      return at_once || now.deadline_over ? Action::Kill : Action::Wait;
    case Phase::Killing:
      return now.deadline_over ? Action::Abandon : Action::Wait;
    case Phase::Checking:
    case Phase::Joining:
    case Phase::Reported:
    case Phase::Delaying:
      break;  // nothing runs then
  }
  return Action::Wait;
}

}  // namespace ddp::launch
