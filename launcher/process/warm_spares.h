// Processes that are started early and wait to become the next round's workers; the contract is in
// worker_contract.h. A spare is no worker: its death is no failure and its silence no hang, it gets
// no signals, and it does not outlive ddp-run. Runs in a poll loop; never blocks.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "launcher/base/poll_handler.h"
#include "launcher/process/spawn.h"
#include "launcher/process/worker_spec.h"

namespace ddp::launch {

class WarmSpares : public PollHandler {
 public:
  /// `note` prints a line for the user.
  WarmSpares(std::function<void(const std::string&)> note, bool keep_hangup_ignored);
  ~WarmSpares() override;
  WarmSpares(const WarmSpares&) = delete;
  WarmSpares& operator=(const WarmSpares&) = delete;

  /// Starts one for each of `specs`, in place of all earlier ones. One that dies is replaced, at
  /// most kMostDeaths - 1 times.
  void keep(const std::vector<WorkerSpec>& specs);
  /// Kills them.
  void end();

  /// The pid of this local rank's spare, which is the worker from now on. nullopt: there is none
  /// that is ready, so the worker has to be started.
  std::optional<pid_t> hand_over(const WorkerSpec& worker, const WorkerStdio& stdio);

  std::vector<pid_t> pids() const;
  /// Reaps this child if it is a spare that exited; false: it is not.
  bool take_exit(pid_t pid);
  /// Likewise for all of them.
  void take_exits();

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

  static constexpr int kMostDeaths = 3;

 private:
  struct Spare {
    WorkerSpec spec;
    pid_t pid = 0;
    int socket = -1;
    bool ready = false;
    int deaths = 0;
    Clock::time_point due{};  // to be started, if pid is 0
  };

  void start(Spare& spare);
  void spawn(Spare& spare, int theirs);
  static void kill(Spare& spare);
  void died(Spare& spare, const std::string& how);
  static void listen(Spare& spare);
  void say_memory();

  std::function<void(const std::string&)> note_;
  bool keep_hangup_ignored_;
  std::map<int, Spare> spares_;  // by local rank
  bool memory_said_ = false;
};

}  // namespace ddp::launch
