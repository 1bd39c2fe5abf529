// LocalElasticAgent: keeps one node's workers going. Waits for an event, asks agent_policy, acts;
// touches the operating system through ProcessRunner only.
#pragma once

#include <optional>
#include <string>

#include "launcher/agent_policy.h"
#include "launcher/process_runner.h"
#include "launcher/rendezvous.h"
#include "launcher/restart_policy.h"
#include "launcher/run_folder.h"
#include "launcher/worker_env.h"
#include "launcher/worker_group.h"

namespace ddp::launch {

struct AgentSpec {
  Command command;
  Environment inherited;
  JobInfo job;
  std::chrono::milliseconds grace{30'000};
  RunFolder folder;
  RestartRules restarts;
  LogOptions logs;
  std::string host;
};

class LocalElasticAgent {
 public:
  LocalElasticAgent(AgentSpec spec, RendezvousHandler& rendezvous, ProcessRunner& processes);

  /// Returns when nothing of the job is left running. Throws LaunchError when workers cannot be
  /// started.
  RunResult run();

 private:
  void start_round();
  WorkerSpec describe_worker(const Worker& worker) const;
  void absorb(const std::vector<Event>& events);
  void absorb_signal(const Event& event);
  void absorb_exits(const std::vector<Event>& events);
  Situation situation() const;
  int running() const;

  void stop_workers();
  void kill_workers();
  void judge_end_of_round();
  void announce_restart();
  void delay_restart();
  void restart();
  RunResult finish(Outcome outcome);

  AgentSpec spec_;
  RendezvousHandler& rendezvous_;
  ProcessRunner& processes_;

  WorkerGroup group_;
  Phase phase_ = Phase::Running;
  std::optional<Clock::time_point> deadline_;  // of the phase
  std::vector<ProcessFailure> failures_;
  Clock::time_point job_began_;
  Clock::time_point round_began_;
  std::vector<RoundEnd> history_;
  std::optional<RestartVerdict> verdict_;  // on the round that has just ended
  int end_signal_ = 0;                     // 0: no signal has asked for the end
  Clock::time_point end_signal_at_;
  bool hurry_ = false;
  bool launcher_gone_ = false;
};

}  // namespace ddp::launch
