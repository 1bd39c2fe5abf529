#include "launcher/base/states.h"

namespace ddp::launch {

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::Checking:
      return "checking this node";
    case Phase::Joining:
      return "joining";
    case Phase::Reported:
      return "waiting for the other nodes";
    case Phase::Running:
      return "running";
    case Phase::Leaving:
      return "leaving";
    case Phase::Dumping:
      return "dumping stacks";
    case Phase::Stopping:
      return "stopping";
    case Phase::Killing:
      return "killing";
    case Phase::Delaying:
      return "waiting to restart";
  }
  return "";
}

const char* name_of(WorkerState state) {
  switch (state) {
    case WorkerState::Running:
      return "running";
    case WorkerState::Succeeded:
      return "succeeded";
    case WorkerState::Failed:
      return "failed";
    case WorkerState::Stopped:
      return "stopped";
  }
  return "";
}

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::Succeeded:
      return "succeeded";
    case Outcome::Failed:
      return "failed";
    case Outcome::Preempted:
      return "preempted";
    case Outcome::Interrupted:
      return "interrupted";
    case Outcome::GuardianGone:
      return "guardian killed";
  }
  return "";
}

const char* event_name(WorkerState ended) {
  switch (ended) {
    case WorkerState::Succeeded:
      return "SUCCEEDED";
    case WorkerState::Failed:
      return "FAILED";
    case WorkerState::Running:
    case WorkerState::Stopped:
      break;
  }
  return "TERMINATED";
}

const char* event_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::Succeeded:
      return "SUCCEEDED";
    case Outcome::Failed:
      return "FAILED";
    case Outcome::Preempted:
      return "PREEMPTED";
    case Outcome::Interrupted:
    case Outcome::GuardianGone:
      break;
  }
  return "INTERRUPTED";
}

}  // namespace ddp::launch
