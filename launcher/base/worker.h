// The agent's records of its workers: plain structs.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/error_file.h"
#include "launcher/base/states.h"

namespace ddp::launch {

struct ExitStatus {
  int code = 0;    // when signal is 0
  int signal = 0;  // that killed the process
  bool ok() const { return code == 0 && signal == 0; }
};

/// Returns how a child ended, from si_code and si_status of waitid.
inline ExitStatus exit_status_of(int code, int status) {
  return code == CLD_EXITED ? ExitStatus{status, 0} : ExitStatus{0, status};
}

/// "exit code 7" or "killed by SIGKILL".
std::string describe_exit(const ExitStatus& exit);
/// Converts waitpid's status to an exit code as shells do: 128 + N if signal N killed the process.
int exit_code_of(int wait_status);

enum class WorkerProgram {
  kOther,    // its exit codes are its own
  kTrainer,  // the one that is installed next to ddp-run: kExitCodeMeanings
};

/// Exit codes of a worker that mean more than "failed".
enum class ExitMeaning {
  kNone,
  kUsage,      // kExitUsage: its command line or configuration is wrong
  kPreempted,  // kExitPreempted: it saved its state and wants to be restarted later
  kFinal,      // kExitFinal: it would fail the same way again
};

/// Returns None for any other program and for an end by a signal.
ExitMeaning meaning_of(WorkerProgram program, const ExitStatus& exit);

/// The kernel's accounting of a finished process, including its reaped children.
struct ResourceUsage {
  double cpu_seconds = 0;
  long max_rss_kib = 0;
};

struct Worker {
  int local_rank = 0;
  int rank = 0;
  pid_t pid = 0;
  WorkerState state = WorkerState::kRunning;
  ExitStatus exit;
  bool was_dying = false;     // was already dying on its own when asked to stop
  bool stopped_well = false;  // exited with 0 on request to stop: it has not finished
  ErrorFile error_file;
  std::string heartbeat_file;  // empty: none
  ResourceUsage usage;
  Clock::duration lived{};
  Clock::duration spawned{};  // since the job began
  std::optional<Clock::duration>
      first_line{};  // since it was spawned; nullopt: ddp-run copied no output
};

/// A worker's progress according to its last heartbeat; fields it did not report are empty.
struct Progress {
  std::optional<long long> step{};
  std::string phase{};
  std::string waiting{};     // the collective in which it is waiting for its peers
  std::string collective{};  // the last one it started: NAME#SEQUENCE
};

/// This node's part in one round, and the meeting point of its workers.
struct RendezvousInfo {
  int restart_count = 0;  // of the job: all nodes agree
  long long epoch = 0;    // grows with each round of a job, even if its host changes
  std::string job{};      // a random id: epochs of the same one can be compared
  int group_rank = 0;
  int group_world_size = 1;
  int first_rank = 0;  // of this node's workers
  int world_size = 0;  // 0: the number of this node's workers
  int first_role_rank = 0;
  int role_world_size = 0;  // 0: the same
  std::string master_addr;
  int master_port = 0;
  bool agent_store = false;  // ddp-run hosts the store there; else rank 0 does
  int store_socket =
      -1;  // where its clients connect (store/store_service.h), not owned; -1: not on this node
};

struct WorkerGroup {
  RendezvousInfo rendezvous;
  int restart_count = 0;
  std::string last_failure{};  // of the previous round, as JSON; empty in the first
  Clock::time_point began{};
  std::vector<Worker> workers{};
};

}  // namespace ddp::launch
