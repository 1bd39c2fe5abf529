// ddp-store from the launcher's side: started at the first connection of a job and kept over its
// rounds, each of which has a socket and a store of its own. Belongs into a poll loop; never waits.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "launcher/base/worker.h"

namespace ddp::launch {

/// The store of this round is gone, with what workers kept there.
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

  /// The store of the next round, new and empty, is served on `listening_socket` (not owned, open
  /// until the next call) as soon as somebody connects.
  void serve(int listening_socket);
  /// True when the running companion still serves that very socket: it must be dead before the
  /// next round, or it would give newcomers the store of the old one.
  bool serves(int listening_socket) const;
  /// No store from now on; the companion gets SIGKILL, and whoever sweeps reaps it.
  void stop();

  /// To be polled for input; -1: nothing is awaited.
  int poll_fd() const { return awaited_ ? socket_ : -1; }
  /// Somebody connects. A loss when the companion cannot be started.
  std::optional<StoreLoss> handle_connection();

  /// To be polled for input as well: what the companion reports; -1: none runs.
  int report_fd() const { return control_; }
  /// Must not wait for the companion's end: a companion whose reports nobody reads stops serving.
  void take_reports();

  pid_t pid() const { return pid_; }  // 0: none runs
  /// Reaps the companion if it has ended. A loss, unless it is one of an earlier round that has not
  /// served this one yet: then whoever connects is served by a fresh one. After a loss there is no
  /// store until serve().
  std::optional<StoreLoss> take_exit();

 private:
  /// 0, or the errno at which it failed.
  int start();
  void close_control();

  std::string program_;
  int socket_ = -1;
  bool awaited_ = false;  // nobody has connected yet
  bool in_use_ = false;   // the companion has got socket_
  bool warm_ = false;     // the companion is one of an earlier round
  pid_t pid_ = 0;
  int control_ = -1;
  int handed_over_ = 0;  // sockets that this companion has not reported as served
};

}  // namespace ddp::launch
