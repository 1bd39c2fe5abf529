// What the agent knows about its workers: plain structs, no behaviour.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/logs/stream_plan.h"

namespace ddp::launch {

using Clock = std::chrono::steady_clock;
using Environment = std::map<std::string, std::string>;

struct ExitStatus {
  int code = 0;    // when signal is 0
  int signal = 0;  // that killed the process
  bool ok() const { return code == 0 && signal == 0; }
};

/// What every worker runs; the same for all but for ${local_rank} in the arguments.
struct Command {
  std::string executable;  // path that is executed
  std::vector<std::string> argv;
};

/// One process to start.
struct WorkerSpec {
  int local_rank = 0;
  Command command;
  Environment environment;
  WorkerStreams streams;
  bool inherits_stdin = true;  // else it reads end of file
  std::string heartbeat_file;  // empty: none
  std::vector<int> cpus;       // that it may run on; empty: as ddp-run
};

/// What the kernel says about a process that has ended, its reaped children included.
struct ResourceUsage {
  double cpu_seconds = 0;
  long max_rss_kib = 0;
};

enum class WorkerState {
  Running,
  Succeeded,
  Failed,
  Stopped,  // ended after we had told it to
};

struct Worker {
  int local_rank = 0;
  int rank = 0;
  pid_t pid = 0;
  WorkerState state = WorkerState::Running;
  ExitStatus exit;
  bool was_dying = false;      // when it was told to stop: it ends for a reason of its own
  std::string error_file;      // empty: none
  std::string heartbeat_file;  // empty: none
  ResourceUsage usage;
  Clock::duration lived{};
  Clock::duration spawned{};  // since the job began
  std::optional<Clock::duration>
      first_line{};  // since it was spawned; none: ddp-run copied nothing
};

/// How far a worker has got, as its last heartbeat says. Words that it did not say are empty.
struct Progress {
  std::optional<long long> step{};
  std::string phase{};
  std::string waiting{};     // the collective in which it waits for its peers
  std::string collective{};  // the last one that it began: NAME#SEQUENCE
};

/// Where the workers of one round meet.
struct RendezvousInfo {
  int group_rank = 0;
  int group_world_size = 1;
  std::string master_addr;
  int master_port = 0;
  bool agent_store = false;  // a store is served there, before and after rank 0; else rank 0 does
  int store_socket = -1;     // listens there, for the store to be served on; not owned
};

struct WorkerGroup {
  RendezvousInfo rendezvous;
  int restart_count = 0;
  std::string last_failure{};  // of the round before, as JSON; empty in the first one
  Clock::time_point began{};
  std::vector<Worker> workers{};
};

/// A worker that failed by itself, as the report needs it; or something else without which a round
/// cannot go on: then both ranks are kNoRank and `cause` says what.
struct ProcessFailure {
  static constexpr int kNoRank = -1;

  int local_rank = 0;
  int rank = 0;
  pid_t pid = 0;
  ExitStatus exit;
  std::string error_file{};
  std::string last_stderr{};  // the end of what it wrote there
  std::string cause{};        // what the system says of this death; may be empty
  std::string hang{};         // it was alive but silent: for how long, and where; empty: it ended
  std::string heartbeat{};    // the words of its last one
  Progress progress{};        // what they mean
  double time = 0;            // when it was seen; Unix seconds
  Clock::duration lived{};    // from the start of the round until then
  std::string stacks{};       // file that says what it did when it hung; empty: none

  bool is_worker() const { return local_rank != kNoRank; }
};

enum class Outcome {
  Succeeded,
  Failed,
  Preempted,  // the workers have saved their state and want to be started again later
  Interrupted,
  LauncherGone,
};

struct RunResult {
  Outcome outcome = Outcome::Succeeded;
  int signal = 0;                        // Interrupted: the signal that ended the job
  std::vector<ProcessFailure> failures;  // of the last round, root cause first
  int stopped = 0;                       // peers that were stopped because of it
  int restarts = 0;
  int max_restarts = 0;
  std::vector<Worker> workers;         // of the last round
  Clock::duration lived{};             // all rounds together
  std::string gave_up;                 // why not all restarts were used
  std::vector<std::string> survivors;  // "pid 12 (state D)": could not be killed in time
};

}  // namespace ddp::launch
