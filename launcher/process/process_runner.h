// The interface between the agent and the operating system; tests use a scripted fake.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/proc_files.h"
#include "launcher/base/worker.h"
#include "launcher/hang/heartbeat.h"
#include "launcher/hang/stack_dump.h"
#include "launcher/process/stop_requests.h"
#include "launcher/process/worker_spec.h"

namespace ddp::launch {

struct Event {
  enum class Kind {
    kWorkerExited,
    kSignal,
    kGuardianGone,    // SIGKILL of the process that the user started
    kHeartbeatBegan,  // a worker wrote its first heartbeat
    kStacksDumped,    // all processes of dump_stacks() have ended
    kPrepared,        // what prepare() has begun is done, or has failed
    kCheckEnded,      // the process of start_check() has ended
    kLeftoversEnded,  // lingering() has become false
    kStoreLost,       // the process of the workers' store exited, or cannot be started
  };
  Kind kind = Kind::kSignal;
  pid_t pid = 0;                      // WorkerExited
  ExitStatus exit{};                  // WorkerExited, CheckEnded, StoreLost
  ResourceUsage usage{};              // WorkerExited
  ErrorFile error_file{};             // WorkerExited; an empty path: as planned
  double time = 0;                    // WorkerExited: when, in Unix seconds; 0: now
  std::string cause{};                // WorkerExited: the system's explanation; may be empty.
                                      // StoreLost: what happened. CheckEnded: its telling line
  int signal = 0;                     // Signal
  bool ends_job = false;              // Signal: ends the job, otherwise is forwarded
  SignalOrigin origin{};              // Signal
  std::vector<int> without_stacks{};  // StacksDumped: local ranks whose debugger failed
};

struct StackDump {
  int local_rank = 0;
  std::string file;         // empty: take_stacks()
  bool by_debugger = true;  // otherwise its thread states only
};

struct TakenStacks {
  std::string text{};
  bool complete = true;       // false: a debugger was ended
  bool lacks_python = false;  // it is Python, and no frame of it is there
};

class ProcessRunner {
 public:
  virtual ~ProcessRunner() = default;

  /// Begins to create the folders of a round, which may throw LaunchError, and to open its workers'
  /// log files, for start(), which then throws. Returns whether that is done; else Prepared
  /// follows.
  virtual bool prepare(std::function<void()> create_folders,
                       const std::vector<WorkerSpec>& specs) = 0;
  /// Starts all workers, each in its own session, and returns their pids in order. If one cannot be
  /// started, throws LaunchError with nothing left running.
  virtual std::vector<pid_t> start(const std::vector<WorkerSpec>& specs) = 0;

  /// Starts a standby worker for each of `specs` (which hold all that is known before the next
  /// round). It becomes the next round's worker of its local rank if it is ready by then.
  virtual void keep_standby(const std::vector<WorkerSpec>& specs) = 0;
  /// Kills all standby workers.
  virtual void end_standby() = 0;

  /// Starts a check of this node, not counted as a worker; CheckEnded follows. Throws LaunchError.
  virtual void start_check(const WorkerSpec& spec) = 0;

  /// Waits for at least one event and returns all; empty if none came before turn_began() passed
  /// the deadline.
  virtual std::vector<Event> wait(std::optional<Clock::time_point> deadline) = 0;

  /// Signals each running worker: the first process if it catches the signal, else its group.
  virtual void signal_workers(int signal) = 0;
  /// Likewise asks them to stop. Processes below a worker's first one that catch the signal have
  /// `grace` to end, even if the first one dies of it; they then count as lingering().
  virtual void stop_workers(int signal, std::chrono::milliseconds grace) = 0;
  /// Forwards a signal that does not end the job to the workers, to each once it would not kill it;
  /// workers of the next round get it if none is running or `next_too`.
  virtual void forward(int signal, bool next_too) = 0;
  /// Signals one worker likewise, if it is running.
  virtual void signal_worker(int local_rank, int signal) = 0;

  /// When a worker's output was first copied in this round; nullopt: not yet.
  virtual std::optional<Clock::time_point> first_output(int local_rank) const = 0;
  /// A worker's last sign of life in this round.
  virtual LifeSign life_sign(int local_rank) = 0;
  /// Returns until when a stalled console blocked workers in writes: now if it still does, the
  /// epoch if it never did, as far as known.
  virtual Clock::time_point held_up_until() const = 0;
  /// The kernel's state of a worker.
  virtual KernelState state_of(int local_rank) const = 0;
  /// CPU times of a worker's threads.
  virtual CpuTimes cpu_times_of(int local_rank) const = 0;
  /// Writes each worker's thread states to its file and has a debugger, if one is installed, append
  /// the stacks, in this order; StacksDumped follows. Returns false if no debugger was started.
  virtual bool dump_stacks(const std::vector<StackDump>& wanted) = 0;
  /// Returns what a dump without a file has of this worker by now, once, and ends its debugger.
  /// Appends it to `file` as well, unless that is empty.
  virtual TakenStacks take_stacks(int local_rank, const std::string& file) = 0;

  /// Serves a new, empty store for the next round to clients that connect through `source`
  /// (store/store_service.h; not owned), until the next call or StoreLost. -1: no store. Throws
  /// LaunchError.
  virtual void serve_store(int source) = 0;
  virtual void stop_store() = 0;

  /// Whether processes that outlived the round's workers still have time to end on their own;
  /// LeftoversEnded follows.
  virtual bool lingering() const = 0;
  /// Kills all remaining descendants, including setsid grandchildren, except standby workers and
  /// the store's process. Waits half a second for them, 5 s `at_end`, as the job waits meanwhile.
  /// Returns those that survived.
  virtual std::vector<std::string> sweep(bool at_end) = 0;

  /// Returns what the OOM killer did in this cgroup since the start of the round; empty: nothing
  /// known.
  virtual std::string oom_kills() const = 0;
  /// The last lines of the worker's stderr, complete after sweep(); empty if unknown.
  virtual std::string last_stderr(int local_rank) const = 0;

  /// Prints one line for the user, in order with the workers' stderr.
  virtual void note(const std::string& line) = 0;

  virtual Clock::time_point now() const = 0;
  /// When the last wait() began to read. Waits for others end by it, not by now(): if this process
  /// was stopped since then, what others did meanwhile is still unread.
  virtual Clock::time_point turn_began() const = 0;
  /// Seconds since 1970.
  virtual double unix_time() const = 0;
};

}  // namespace ddp::launch
