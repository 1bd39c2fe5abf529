// Decides what the agent does next. Pure: tested as a table, without processes or a clock.
#pragma once

#include "launcher/base/states.h"

namespace ddp::launch {

struct Situation {
  Phase phase = Phase::kRunning;
  int running = 0;             // workers that have not exited
  bool failed = false;         // a worker failed on its own, here or on another node
  bool preempted = false;      // every failed worker was preempted and saved its state
  bool dumping = false;        // the failure is a hang whose stacks can be dumped
  bool interrupted = false;    // a signal ends the job
  bool hurry = false;          // the signal was sent again
  bool suspended = false;      // by SIGTSTP
  bool deadline_over = false;  // of the current phase
  bool guardian_gone = false;  // the process that the user started was killed
  bool round_ready = false;    // the nodes have agreed on the next round
  bool over = false;           // the nodes have agreed to end the job
  bool may_restart = false;    // the nodes have agreed on a restart
  bool delay = false;          // after a delay
  bool lingering = false;      // what the workers left behind has time to end on its own
};

enum class Action {
  kWait,   // for the next event
  kStart,  // this node's workers
  kLeave,  // start the grace period without signalling workers
  kDumpStacks,
  kStop,       // ask all workers to stop, start the grace period
  kKill,       // SIGKILL to all workers
  kAbandon,    // workers survived SIGKILL: report them and exit
  kDelay,      // clean up, restart later
  kRestart,    // join the next round
  kFinish,     // all succeeded
  kFail,       // report the root cause
  kInterrupt,  // end with 128 + signal
};

Action decide(const Situation& now);

}  // namespace ddp::launch
