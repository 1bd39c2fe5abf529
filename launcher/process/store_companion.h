// The launcher's side of ddp-store: started on a job's first connection and kept across its rounds,
// each with its own socket and store. Runs in a poll loop; never blocks.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "launcher/base/worker.h"

namespace ddp::launch {

/// This round's store is gone, with its contents.
struct StoreLoss {
  ExitStatus exit;
  std::string what;  // one line for the user
};

class StoreCompanion {
 public:
  explicit StoreCompanion(std::string program);
  ~StoreCompanion();
  StoreCompanion(const StoreCompanion&) = delete;
  StoreCompanion& operator=(const StoreCompanion&) = delete;

  /// Serves the next round's store, new and empty, on `listening_socket` (not owned, open until the
  /// next call) once a client connects.
  void serve(int listening_socket);
  /// True if the running companion still serves that same socket: it must die before the next
  /// round, or it would serve the old store to new clients.
  bool serves(int listening_socket) const;
  /// No store from now on; the companion gets SIGKILL, and the sweep reaps it.
  void stop();

  /// Poll for input; -1: nothing is awaited.
  int poll_fd() const { return awaited_ ? socket_ : -1; }
  /// A client connects. Returns a loss if the companion cannot be started.
  std::optional<StoreLoss> handle_connection();

  /// Poll for input: the companion's reports; -1: not running.
  int report_fd() const { return control_; }
  /// Must be read while the companion runs: it stops serving if its reports pile up.
  void take_reports();

  pid_t pid() const { return pid_; }  // 0: not running
  /// Reaps the companion if it exited. Returns a loss, unless it has not served this round yet:
  /// then a new one serves the next client. After a loss there is no store until serve().
  std::optional<StoreLoss> take_exit();

 private:
  /// 0, or the errno it failed with.
  int start();
  void close_control();

  std::string program_;
  int socket_ = -1;
  bool awaited_ = false;  // no client has connected yet
  bool in_use_ = false;   // the companion has received socket_
  bool warm_ = false;     // the companion is from an earlier round
  pid_t pid_ = 0;
  int control_ = -1;
  int handed_over_ = 0;  // sockets this companion has not yet reported as served
};

}  // namespace ddp::launch
