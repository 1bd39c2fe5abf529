// Runs one program alongside the agent, without waiting, and keeps the end of its output.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/base/worker.h"
#include "launcher/process/worker_spec.h"

namespace ddp::launch {

class CheckProcess : public PollHandler {
 public:
  struct End {
    ExitStatus exit{};
    std::string
        said{};  // its last line that begins with "error:", else its last line; may be empty
  };

  /// Starts it with stdin at end-of-file; stdout and stderr are read here. Throws LaunchError.
  void start(const WorkerSpec& spec);
  /// Call for every child that has exited, before it is reaped. Returns nullopt for other children.
  std::optional<End> take_exit(pid_t pid, const ExitStatus& exit);
  /// Call once all children of this process are dead.
  void forget();

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;

 private:
  bool read_some();

  pid_t pid_ = 0;
  Descriptor output_;  // non-blocking
  std::string tail_;
};

/// Returns the last line that begins with "error:", else the last non-empty line.
std::string telling_line(const std::string& output);

}  // namespace ddp::launch
