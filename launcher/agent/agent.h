// LocalElasticAgent supervises one node's workers: it waits for an event, asks agent_policy, and
// acts. It reaches the operating system only through ProcessRunner and the other nodes only through
// Rendezvous. Single-threaded; lives for one job.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/agent_policy.h"
#include "launcher/agent/exit_watch.h"
#include "launcher/agent/hang_monitor.h"
#include "launcher/agent/pace_monitor.h"
#include "launcher/base/clock.h"
#include "launcher/base/errors.h"
#include "launcher/base/run_result.h"
#include "launcher/base/states.h"
#include "launcher/base/worker.h"
#include "launcher/plan/job_plan.h"
#include "launcher/process/process_runner.h"
#include "launcher/process/stop_requests.h"
#include "launcher/rendezvous/rendezvous.h"
#include "launcher/rendezvous/restart_policy.h"
#include "launcher/report/job_status.h"

namespace ddp::launch {

class LocalElasticAgent {
 public:
  LocalElasticAgent(JobPlan plan, Rendezvous& rendezvous, ProcessRunner& processes);

  /// Runs the job and returns once none of its processes is left. Throws LaunchError if the workers
  /// cannot be started.
  RunResult run();
  /// Returns the current state of the job.
  JobStatus status() const;
  /// Takes a text for the user.
  using Show = std::function<void(const std::string& text, bool complete)>;
  /// Has debuggers print the stacks of this node's workers, which continue, and asks the other
  /// nodes for theirs. Calls `show` once, now or while the job runs.
  void show_stacks(const Show& show);
  /// Asks the other nodes for their status. Calls `show` once, now or within seconds, with that of
  /// all nodes that have replied.
  void show_status(const Show& show);
  /// The stop requests so far; ending the job adds its own.
  StopRequests& stop_requests() { return stop_requests_; }

 private:
  void join();
  void begin_check();
  void absorb_check(const Event& event);
  void watch_check();
  void fail_check(const std::string& why);
  void start_round();
  bool prepare_round();
  std::vector<WorkerSpec> plan_workers(std::vector<Worker>& workers) const;
  void start_workers();
  void absorb(const std::vector<Event>& events);
  void absorb_news();
  void absorb_news(JobNews news);
  void absorb_signal(const Event& event);
  void resume();
  void absorb_exits(const std::vector<Event>& events);
  void absorb_exit(const Event& event, std::vector<ProcessFailure>& batch);
  void absorb_store_loss(const Event& event);
  void look_for_hangs();
  void look_at_pace();
  void forget_pace();
  void record_event(const Worker& worker) const;
  Situation situation() const;
  bool serves_only_others() const;
  bool told_to_stop() const;
  int running() const;
  bool all_preempted() const;
  bool is_hung(const Worker& worker) const;
  const Worker& worker_of(const ProcessFailure& failure) const;
  std::chrono::milliseconds grace() const;
  std::optional<Clock::time_point> next_wakeup() const;

  bool may_need_standby() const;
  void keep_standby();

  void leave();
  bool cause_is_stopped() const;
  void dump_stacks();
  void print_stacks();
  void begin_stacks(const Show& show);
  void end_stacks(const char* remark = "");
  void end_status();
  TakenStacks stacks_of(const Worker& worker);
  void ask_for_stacks(const std::vector<int>& local_ranks);
  void stop_workers();
  void kill_workers();
  void report_failure();
  void report_end();
  void delay_restart();
  void restart();
  void absorb_failed_start(const LaunchError& error);
  Clock::duration since_start() const;
  std::vector<ProcessFailure> what_failed(Outcome outcome);
  RunResult finish(Outcome outcome);

  JobPlan plan_;
  Rendezvous& rendezvous_;
  ProcessRunner& processes_;

  WorkerGroup group_;
  Phase phase_ = Phase::kJoining;
  std::optional<Clock::time_point> deadline_;  // of the phase
  HangMonitor hangs_;
  ExitWatch exits_;
  PaceMonitor pace_;
  std::optional<Clock::time_point>
      standby_due_;            // when to check whether standby workers are wanted
  bool standby_kept_ = false;  // standby workers were started in this round
  bool suspended_ = false;     // by SIGTSTP
  Clock::time_point suspended_at_;
  bool dumping_ = false;  // a stack dump is due or in progress
  std::vector<Show> stack_readers_;
  std::vector<Show> status_readers_;
  std::map<int, std::string> statuses_;              // replies to the pending request, by node
  std::optional<Clock::time_point> status_due_;      // set: replies are awaited
  std::optional<Clock::time_point> stacks_due_;      // set: stacks are being shown
  std::optional<Clock::time_point> stacks_printed_;  // requested for the console
  std::set<int> asked_for_stacks_;  // local ranks sent SIGABRT, as no debugger could dump them
  std::vector<ProcessFailure> failures_;
  Clock::time_point job_began_;
  std::optional<RendezvousInfo> next_round_;
  bool prepared_ = false;                 // the round of group_, which has not started yet
  std::optional<JobNews> asked_to_stop_;  // by the other nodes
  double asked_at_ = 0;                   // in Unix seconds
  std::optional<JobNews> verdict_;        // Restart or End, on the round that just ended
  bool check_due_ = false;                // of this node, before it joins
  std::string unfit_;                     // why the check failed; other nodes are being notified
  bool ever_started_ = false;
  int restarts_ = 0;  // after failures
  std::vector<EarlierRound> earlier_;
  bool failure_reported_ = false;
  bool end_reported_ = false;
  int end_signal_ = 0;  // the signal that ends the job; 0: none
  StopRequests stop_requests_;
  bool guardian_gone_ = false;
};

}  // namespace ddp::launch
