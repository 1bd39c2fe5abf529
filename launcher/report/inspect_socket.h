// --status and --stacks: an agent answers another ddp-run of its user on this machine, through a
// socket in the job's folder in memory (DDP_SHM_DIR), which no other user can enter.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/poll_handler.h"

namespace ddp::launch {

/// The name that the kernel shows of the process that the user has started.
inline constexpr const char* kCommand = "ddp-run";

/// The names under which a user may ask for a job.
struct JobNames {
  std::string run_id{};
  std::string folder{};       // of the run, without links; empty: none
  bool has_log_dir = false;   // the folder above is the job's --log-dir
  std::vector<pid_t> pids{};  // the agent first
};

/// The agent's end: part of its poll loop, for as long as it runs.
class InspectSocket : public PollHandler {
 public:
  /// Replies, once, with a text for the user; may be called later.
  using Reply = std::function<void(const std::string& text, bool complete)>;
  struct Job {
    std::function<JobNames()> names;
    std::function<void(const Reply& reply)> show_status;
    std::function<void(const Reply& reply)> show_stacks;
  };

  /// Without `shm_dir`, or if the socket cannot be created, no one can ask.
  InspectSocket(const std::string& shm_dir, Job job);

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;

 private:
  Descriptor fd_;
  Job job_;
};

struct Inspection {
  std::string text{};
  bool complete = true;
};

/// Asks the running jobs named `run` (an id, the folder of the logs, or the pid of ddp-run or of a
/// worker) and returns their answers, which may take a minute. `place`: MemoryFolder::kPlace;
/// `option`: "status" or "stacks". Throws LaunchError (2) if there is none, with those that run.
Inspection inspect_job(const std::string& place, const std::string& option, const std::string& run);

}  // namespace ddp::launch
