// What the agent does next, as a pure function: tested as a table, without a process or a clock.
#pragma once

#include "launcher/base/states.h"

namespace ddp::launch {

struct Situation {
  Phase phase = Phase::Running;
  int running = 0;             // workers that have not ended
  bool failed = false;         // a worker failed by itself, here or on another node
  bool preempted = false;      // all that failed said that they have saved and want to go
  bool dumping = false;        // the failure is a hang, and its stacks can be had
  bool interrupted = false;    // a signal asked for the end of the job
  bool hurry = false;          // the signal came again
  bool suspended = false;      // by SIGTSTP
  bool deadline_over = false;  // of the current phase
  bool launcher_gone = false;  // the process that the user started is dead
  bool round_ready = false;    // the nodes have agreed on the next round
  bool over = false;           // the nodes have agreed on the end of the job
  bool may_restart = false;    // the nodes have agreed on a restart
  bool delay = false;          // but not at once
};

enum class Action {
  Wait,   // for the next event
  Start,  // this node's workers
  Leave,  // start the grace period, ask nobody
  DumpStacks,
  Stop,       // ask all workers to stop, start the grace period
  Kill,       // SIGKILL to all workers
  Abandon,    // they survive SIGKILL: name them and go
  Delay,      // clear up, restart later
  Restart,    // join the next round
  Finish,     // all succeeded
  Fail,       // report the root cause
  Interrupt,  // end with 128 + signal
};

Action decide(const Situation& now);

}  // namespace ddp::launch
