// Runs the workers' store as a child process, so that its traffic costs the agent neither time nor
// memory. Each round has its own process, forked from the agent (without exec) at the first
// connection. Runs in a poll loop.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/system/descriptors.h"
#include "launcher/base/worker.h"

namespace ddp::launch {

/// The loss of this round's store with its contents.
struct StoreLoss {
  ExitStatus exit;
  std::string what;  // one line for the user
};

class StoreProcess {
 public:
  StoreProcess() = default;
  ~StoreProcess() { stop(); }

  /// Ends the last round's store and serves a new, empty one to clients that connect through
  /// `source` (store/store_service.h; not owned); -1: this node serves none. Throws LaunchError.
  void serve(int source);
  /// Kills the process and waits for its end; there is no store from now on.
  void stop();

  /// Descriptor to poll for input; -1: no first client is expected.
  int poll_fd() const { return awaited_ ? source_.get() : -1; }
  /// Call when the first client connects: starts the process. Returns a loss if that fails.
  std::optional<StoreLoss> handle_client();

  /// Descriptor to poll for lines for the user; -1: not running.
  int notes_fd() const { return control_.get(); }
  std::vector<std::string> take_notes();

  pid_t pid() const { return pid_; }  // 0: not running
  /// Reaps the process if it exited; returns the loss.
  std::optional<StoreLoss> take_exit();

 private:
  Descriptor source_;     // a copy, as the original may be closed before this node's round ends
  bool awaited_ = false;  // no client has connected yet
  pid_t pid_ = 0;
  Descriptor control_;
};

}  // namespace ddp::launch
