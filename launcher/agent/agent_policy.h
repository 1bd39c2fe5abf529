// Decides what the agent does next. Pure: tested as a table, without processes or a clock.
#pragma once

#include "launcher/base/states.h"

namespace ddp::launch {

struct Situation {
  Phase phase = Phase::Running;
  int running = 0;             // workers that have not exited
  bool failed = false;         // a worker failed on its own, here or on another node
  bool preempted = false;      // every failed worker was preempted and saved its state
  bool dumping = false;        // the failure is a hang whose stacks can be dumped
  bool interrupted = false;    // a signal ends the job
  bool hurry = false;          // it was sent again
  bool suspended = false;      // by SIGTSTP
  bool deadline_over = false;  // of the current phase
  bool guardian_gone = false;  // the process that the user started was killed
  bool round_ready = false;    // the nodes have agreed on the next round
  bool over = false;           // the nodes have agreed to end the job
  bool may_restart = false;    // the nodes have agreed on a restart
  bool delay = false;          // after a delay
};

enum class Action {
  Wait,   // for the next event
  Start,  // this node's workers
  Leave,  // start the grace period without signalling workers
  DumpStacks,
  Stop,       // ask all workers to stop, start the grace period
  Kill,       // SIGKILL to all workers
  Abandon,    // workers survived SIGKILL: report them and exit
  Delay,      // clean up, restart later
  Restart,    // join the next round
  Finish,     // all succeeded
  Fail,       // report the root cause
  Interrupt,  // end with 128 + signal
};

Action decide(const Situation& now);

}  // namespace ddp::launch
