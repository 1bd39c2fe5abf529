// The workers as processes: starts them, waits for events, signals them. Makes no decisions.
#pragma once

#include <deque>
#include <map>

#include "launcher/base/clock.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/hang/file_timers.h"
#include "launcher/hang/first_writes.h"
#include "launcher/hang/heartbeat.h"
#include "launcher/hang/stack_dump.h"
#include "launcher/logs/log_pump.h"
#include "launcher/process/check_process.h"
#include "launcher/process/left_behind.h"
#include "launcher/process/oom_watch.h"
#include "launcher/process/process_runner.h"
#include "launcher/process/signal_mailbox.h"
#include "launcher/process/spawn.h"
#include "launcher/process/stack_dumper.h"
#include "launcher/process/standby_workers.h"
#include "launcher/process/stop_requests.h"
#include "launcher/process/store_process.h"
#include "launcher/process/worker_signals.h"
#include "launcher/process/worker_spec.h"

namespace ddp::launch {

class WorkerProcesses : public ProcessRunner {
 public:
  /// `guardian_pipe`: reports end-of-file when the guardian dies; -1: none. Not owned.
  WorkerProcesses(const SignalMailbox& signals, int guardian_pipe);
  ~WorkerProcesses() override;

  bool prepare(std::function<void()> create_folders, const std::vector<WorkerSpec>& specs) override;
  std::vector<pid_t> start(const std::vector<WorkerSpec>& specs) override;
  void keep_standby(const std::vector<WorkerSpec>& specs) override { standby_.keep(specs); }
  void end_standby() override { standby_.end(); }
  void start_check(const WorkerSpec& spec) override { check_.start(spec); }
  std::vector<Event> wait(std::optional<Clock::time_point> deadline) override;
  void signal_workers(int signal) override { stop_workers(signal, {}); }
  void stop_workers(int signal, std::chrono::milliseconds grace) override;
  void forward(int signal, bool next_too) override;
  void serve_store(int source) override { store_.serve(source); }
  void stop_store() override { store_.stop(); }
  void signal_worker(int local_rank, int signal) override;
  LifeSign life_sign(int local_rank) override;
  std::optional<Clock::time_point> first_output(int local_rank) const override {
    return pump_.first_output(local_rank);
  }
  Clock::time_point held_up_until() const override;
  KernelState state_of(int local_rank) const override;
  CpuTimes cpu_times_of(int local_rank) const override;
  bool dump_stacks(const std::vector<StackDump>& wanted) override;
  TakenStacks take_stacks(int local_rank, const std::string& file) override;
  bool lingering() const override { return leftovers_.lingers(); }
  std::vector<std::string> sweep(bool at_end) override;
  std::string oom_kills() const override;
  std::string last_stderr(int local_rank) const override { return pump_.last_stderr(local_rank); }
  void note(const std::string& line) override { pump_.note(line); }
  Clock::time_point now() const override { return Clock::now(); }
  Clock::time_point turn_began() const override { return turn_began_; }
  double unix_time() const override;

  /// Writes all workers' output before anything else goes to the console. On a stop request that
  /// `requests` has not counted yet, or if the guardian dies, drops it and returns false.
  bool flush(LogPump::Patience patience, StopRequests& requests);
  /// Where the workers' output goes.
  LogPump& logs() { return pump_; }
  /// Sends the timer's signal to its process, if it belongs to a worker's session.
  void end_expired(const ExpiredTimer& timer);
  /// Adds a participant to wait(); it must outlive this object.
  void also_poll(PollHandler& handler) { handlers_.push_back(&handler); }

 private:
  PendingSpawn start_one(const WorkerSpec& spec);
  pid_t pid_of(int local_rank) const;
  std::vector<pid_t> not_the_rounds() const;
  bool has_news() const;
  void take_turn(std::optional<Clock::time_point> deadline, std::vector<Event>& events);
  void take_signals(std::vector<Event>& events);
  void resize_terminals();
  void reap(std::vector<Event>& events);
  void note_loss(const std::optional<StoreLoss>& loss, std::vector<Event>& events);
  void hold_back(Event exit, int local_rank);
  void report_exits(std::vector<Event>& events);
  void watch_heartbeats();

  std::vector<PollHandler*> handlers_;
  const SignalMailbox& signals_;
  Descriptor signal_fd_;
  int guardian_pipe_;
  LogPump pump_;
  StoreProcess store_;
  StandbyWorkers standby_;
  Clock::time_point turn_began_ = Clock::now();
  // Exits of workers whose error files are being read, and what came after them.
  struct HeldEvent {
    Event event;
    Clock::time_point until;
  };
  std::deque<HeldEvent> exits_;
  bool preparing_ = false;
  std::map<int, std::string> error_files_;  // by local rank
  std::map<pid_t, int> running_;            // -> local rank
  HeldSignals held_signals_;
  LeftBehind leftovers_;
  bool killed_ = false;       // running_ got SIGKILL, and the agent waited for it
  bool left_behind_ = false;  // the last sweep left survivors
  std::map<int, Heartbeat> heartbeats_;
  FirstWrites first_heartbeats_;
  std::optional<Clock::time_point> watch_from_;  // heartbeats
  StackDumper stack_dumper_;
  CheckProcess check_;
  std::map<pid_t, std::string> expired_;  // why end_expired() ended each
  OomCounts oom_before_;
};

}  // namespace ddp::launch
