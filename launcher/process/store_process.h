// The workers' store as a child process, so that its traffic takes neither time nor memory of the
// agent's. Each round has a process of its own, started at the first connection: a fork of the
// agent, without exec. Runs in a poll loop.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/worker.h"

namespace ddp::launch {

/// This round's store is gone, with its contents.
struct StoreLoss {
  ExitStatus exit;
  std::string what;  // one line for the user
};

class StoreProcess {
 public:
  StoreProcess() = default;
  ~StoreProcess() { stop(); }
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  /// Ends the last round's store. Those who come through `source` (store/store_service.h; not
  /// owned) are served the next one, new and empty; -1: this process hosts none. Throws
  /// LaunchError.
  void serve(int source);
  /// Kills the process and waits for its death; no store from now on.
  void stop();

  /// Poll for input; -1: nobody is awaited.
  int poll_fd() const { return awaited_ ? source_ : -1; }
  /// The first client comes: starts the process. Returns a loss if that fails.
  std::optional<StoreLoss> handle_client();

  /// Poll for input: lines for the user; -1: not running.
  int notes_fd() const { return control_; }
  std::vector<std::string> take_notes();

  pid_t pid() const { return pid_; }  // 0: not running
  /// Reaps the process if it exited; returns the loss.
  std::optional<StoreLoss> take_exit();

 private:
  int source_ = -1;       // a copy: the original may be closed before the round's end is known here
  bool awaited_ = false;  // no client has come yet
  pid_t pid_ = 0;
  int control_ = -1;
};

}  // namespace ddp::launch
