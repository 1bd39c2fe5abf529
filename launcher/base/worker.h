// What the agent knows about its workers: plain structs, no behaviour.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/states.h"

namespace ddp::launch {

struct ExitStatus {
  int code = 0;    // when signal is 0
  int signal = 0;  // that killed the process
  bool ok() const { return code == 0 && signal == 0; }
};

/// "exit code 7" or "killed by SIGKILL".
std::string describe_exit(const ExitStatus& exit);

/// What the kernel says about a process that has ended, its reaped children included.
struct ResourceUsage {
  double cpu_seconds = 0;
  long max_rss_kib = 0;
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

}  // namespace ddp::launch
