// The seam between the agent and the operating system. Tests put one scripted fake behind it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
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
    HeartbeatBegan,  // the first one of a worker
    StacksDumped,    // all that dump_stacks() has begun
    StoreLost,       // the server of the workers' store has ended, or cannot be started
  };
  Kind kind = Kind::Signal;
  pid_t pid = 0;          // WorkerExited
  ExitStatus exit{};      // WorkerExited, StoreLost
  ResourceUsage usage{};  // WorkerExited
  std::string cause{};    // WorkerExited: what the system says of this death; may be empty.
                          // StoreLost: what has happened
  int signal = 0;         // Signal
  bool ends_job = false;  // Signal: ends the job, or is only passed on
  SignalOrigin origin{};  // Signal
  std::vector<int> without_stacks{};  // StacksDumped: local ranks whose debugger has failed
};

struct StackDump {
  int local_rank = 0;
  std::string file;
};

class ProcessRunner {
 public:
  virtual ~ProcessRunner() = default;

  /// Starts all workers, each in a session of its own, and returns their pids in order. Throws
  /// LaunchError, with nothing left running, when one cannot be started.
  virtual std::vector<pid_t> start(const std::vector<WorkerSpec>& specs) = 0;

  /// Everything that has happened, waiting for at least one event or for the deadline (then:
  /// empty).
  virtual std::vector<Event> wait(std::optional<Clock::time_point> deadline) = 0;

  /// To the process group of each worker that has not ended.
  virtual void signal_workers(int signal) = 0;
  /// To the process group of one, if it has not ended.
  virtual void signal_worker(int local_rank, int signal) = 0;

  /// When something that it wrote was first copied in this round; nullopt: nothing yet.
  virtual std::optional<Clock::time_point> first_output(int local_rank) const = 0;
  /// The last sign of life of a worker of this round.
  virtual LifeSign life_sign(int local_rank) = 0;
  /// Until when workers had to wait for us, as nobody took their output: now, if they still do; the
  /// epoch: never.
  virtual Clock::time_point held_up_until() const = 0;
  /// What the kernel says of it.
  virtual KernelState state_of(int local_rank) const = 0;
  /// Writes what the threads of each worker do into its file, and has a debugger, where one is
  /// installed, add their stacks, in this order; then StacksDumped follows. False: there is no
  /// debugger.
  virtual bool dump_stacks(const std::vector<StackDump>& wanted) = 0;

  /// The workers' store of the coming round, new and empty, is served on this listening socket (not
  /// owned) from the first connection on, until the next call, or until StoreLost.
  virtual void serve_store(int listening_socket) = 0;
  virtual void stop_store() = 0;

  /// Kills every descendant that is left, setsid grandchildren included, but for the server of the
  /// workers' store. Names those that would not die.
  virtual std::vector<std::string> sweep() = 0;

  /// The end of what the worker wrote to stderr, complete after sweep(); empty when that is not
  /// known.
  virtual std::string last_stderr(int local_rank) const = 0;

  /// One line for the user, in order with the workers' stderr.
  virtual void note(const std::string& line) = 0;

  virtual Clock::time_point now() const = 0;
  /// Seconds since 1970.
  virtual double unix_time() const = 0;
};

}  // namespace ddp::launch
