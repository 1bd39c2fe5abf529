#include "launcher/base/states.h"

namespace ddp::launch {

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kChecking:
      return "checking this node";
    case Phase::kJoining:
      return "joining";
    case Phase::kLingering:
      return "waiting for leftover processes to end";
    case Phase::kReported:
      return "waiting for the other nodes";
    case Phase::kRunning:
      return "running";
    case Phase::kLeaving:
      return "leaving";
    case Phase::kDumping:
      return "dumping stacks";
    case Phase::kStopping:
      return "stopping";
    case Phase::kKilling:
      return "killing";
    case Phase::kDelaying:
      return "waiting to restart";
  }
  return "";
}

const char* name_of(WorkerState state) {
  switch (state) {
    case WorkerState::kRunning:
      return "running";
    case WorkerState::kSucceeded:
      return "succeeded";
    case WorkerState::kFailed:
      return "failed";
    case WorkerState::kStopped:
      return "stopped";
  }
  return "";
}

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kSucceeded:
      return "succeeded";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kPreempted:
      return "preempted";
    case Outcome::kInterrupted:
      return "interrupted";
    case Outcome::kGuardianGone:
      return "guardian killed";
  }
  return "";
}

const char* event_name(WorkerState ended) {
  switch (ended) {
    case WorkerState::kSucceeded:
      return "SUCCEEDED";
    case WorkerState::kFailed:
      return "FAILED";
    case WorkerState::kRunning:
    case WorkerState::kStopped:
      break;
  }
  return "TERMINATED";
}

const char* event_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kSucceeded:
      return "SUCCEEDED";
    case Outcome::kFailed:
      return "FAILED";
    case Outcome::kPreempted:
      return "PREEMPTED";
    case Outcome::kInterrupted:
    case Outcome::kGuardianGone:
      break;
  }
  return "INTERRUPTED";
}

}  // namespace ddp::launch
