// ddp-store from the launcher's side: started at the first connection of a job and kept over its
// rounds, each of which has a socket and a store of its own. Belongs into a poll loop; never waits.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace ddp::launch {

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
  /// Somebody connects. Throws LaunchError when the companion cannot be executed.
  void handle_connection();

  /// To be polled for input as well: what the companion reports; -1: none runs.
  int report_fd() const { return control_; }
  /// Must not wait for the companion's end: a companion whose reports nobody reads stops serving.
  void take_reports();

  pid_t pid() const { return pid_; }  // 0: none runs
  /// Reaps the companion if it has ended and returns a line for the user. The next connection
  /// starts a fresh one. Throws LaunchError when it does not work here: it ended by itself before
  /// it served, or was killed so again and again.
  std::optional<std::string> take_exit();

 private:
  void start();
  void close_control();

  std::string program_;
  int socket_ = -1;
  bool awaited_ = false;
  pid_t pid_ = 0;
  int control_ = -1;
  int handed_over_ = 0;  // sockets that this companion has not reported as served
  int vain_starts_ = 0;  // companions in a row that were killed before they served
};

}  // namespace ddp::launch
