// Standby workers (--warm-spares): processes started early that wait to become the next round's
// workers; the contract is in worker_contract.h. Until then its death does not count as a failure
// nor its silence as a hang, it gets no signals, and it does not outlive ddp-run. Runs in a poll
// loop; never blocks.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/process/spawn.h"
#include "launcher/process/worker_spec.h"

namespace ddp::launch {

class StandbyWorkers : public PollHandler {
 public:
  /// `note` prints a line for the user.
  StandbyWorkers(std::function<void(const std::string&)> note, bool keep_hangup_ignored);
  ~StandbyWorkers() override;

  /// Starts one for each of `specs`, after killing all earlier ones. One that dies is replaced, at
  /// most kMaxDeaths - 1 times.
  void keep(const std::vector<WorkerSpec>& specs);
  /// Kills all of them.
  void end();

  /// Turns this local rank's standby worker into `worker` and returns its pid; nullopt: none is
  /// ready, so the worker has to be started.
  std::optional<pid_t> hand_over(const WorkerSpec& worker, const WorkerStdio& stdio);

  std::vector<pid_t> pids() const;
  /// Reaps this child if it is a standby worker that exited. Returns false otherwise.
  bool take_exit(pid_t pid);
  /// Reaps all that exited.
  void take_exits();

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

  static constexpr int kMaxDeaths = 3;

 private:
  struct Standby {
    WorkerSpec spec;
    pid_t pid = 0;
    Descriptor socket{};
    bool ready = false;
    int deaths = 0;
    Clock::time_point due{};  // to be started, if pid is 0
  };

  void start(Standby& standby);
  static void kill(Standby& standby);
  void died(Standby& spare, const std::string& how);
  static void listen(Standby& standby);
  void report_memory();

  std::function<void(const std::string&)> note_;
  bool keep_hangup_ignored_;
  std::map<int, Standby> standby_;  // by local rank
  bool memory_reported_ = false;
};

}  // namespace ddp::launch
