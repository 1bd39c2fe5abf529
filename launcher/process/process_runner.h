// The interface between the agent and the operating system; tests use a scripted fake.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/proc_files.h"
#include "launcher/base/worker.h"
#include "launcher/hang/heartbeat.h"
#include "launcher/hang/stack_dump.h"
#include "launcher/process/stop_requests.h"
#include "launcher/process/worker_spec.h"

namespace ddp::launch {

struct Event {
  enum class Kind {
    WorkerExited,
    Signal,
    LauncherGone,
    HeartbeatBegan,  // a worker's first
    StacksDumped,    // everything dump_stacks() started
    StoreLost,       // the process of the workers' store exited, or cannot be started
  };
  Kind kind = Kind::Signal;
  pid_t pid = 0;                      // WorkerExited
  ExitStatus exit{};                  // WorkerExited, StoreLost
  ResourceUsage usage{};              // WorkerExited
  std::string cause{};                // WorkerExited: the system's explanation; may be empty.
                                      // StoreLost: what happened
  int signal = 0;                     // Signal
  bool ends_job = false;              // Signal: ends the job, or is only forwarded
  SignalOrigin origin{};              // Signal
  std::vector<int> without_stacks{};  // StacksDumped: local ranks whose debugger failed
};

struct StackDump {
  int local_rank = 0;
  std::string file;
};

class ProcessRunner {
 public:
  virtual ~ProcessRunner() = default;

  /// Starts all workers, each in its own session, and returns their pids in order. If one cannot be
  /// started, throws LaunchError with nothing left running.
  virtual std::vector<pid_t> start(const std::vector<WorkerSpec>& specs) = 0;

  /// Keeps a process started for each of these workers, which becomes the next round's worker of
  /// that local rank if it is ready by then. `specs` tell all that is known before that round.
  virtual void keep_spares(const std::vector<WorkerSpec>& specs) = 0;
  /// Kills them.
  virtual void end_spares() = 0;

  /// Waits for at least one event and returns all; empty if the deadline passed first.
  virtual std::vector<Event> wait(std::optional<Clock::time_point> deadline) = 0;

  /// Signals the process group of each running worker.
  virtual void signal_workers(int signal) = 0;
  /// Signals the process group of one worker, if it is running.
  virtual void signal_worker(int local_rank, int signal) = 0;

  /// When its output was first copied in this round; nullopt: not yet.
  virtual std::optional<Clock::time_point> first_output(int local_rank) const = 0;
  /// A worker's last sign of life in this round.
  virtual LifeSign life_sign(int local_rank) = 0;
  /// Until when workers were blocked in writes because the console stalled: now if they still are,
  /// the epoch if they never were, as far as it is known.
  virtual Clock::time_point held_up_until() const = 0;
  /// The kernel's view of the worker.
  virtual KernelState state_of(int local_rank) const = 0;
  /// Of its threads.
  virtual CpuTimes cpu_times_of(int local_rank) const = 0;
  /// Writes each worker's thread states to its file and has a debugger, if one is installed, add
  /// the stacks, in this order; StacksDumped follows. False: no debugger.
  virtual bool dump_stacks(const std::vector<StackDump>& wanted) = 0;

  /// Hosts a new, empty store for the coming round, until the next call or StoreLost, for those who
  /// come through `source` (store/store_service.h; not owned); -1: no store. Throws LaunchError.
  virtual void serve_store(int source) = 0;
  virtual void stop_store() = 0;

  /// Kills all remaining descendants, including setsid grandchildren, except the spares and the
  /// process of the workers' store. Returns those that would not die.
  virtual std::vector<std::string> sweep() = 0;

  /// The last lines of the worker's stderr, complete after sweep(); empty if unknown.
  virtual std::string last_stderr(int local_rank) const = 0;

  /// Prints one line for the user, in order with the workers' stderr.
  virtual void note(const std::string& line) = 0;

  virtual Clock::time_point now() const = 0;
  /// Seconds since 1970.
  virtual double unix_time() const = 0;
};

}  // namespace ddp::launch
