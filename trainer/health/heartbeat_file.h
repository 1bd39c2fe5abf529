// Heartbeats for the launcher: one line in the file DDP_HEARTBEAT_FILE. The contract is in
// launcher/README.md.
#pragma once

#include <string>
#include <string_view>

namespace ddp::train {

/// Seconds until the group is formed: for the program, and again for the connections. Longer with
/// `gpu`, as gigabytes of libraries have to be loaded.
constexpr double promise_of_start(bool gpu) { return gpu ? 300.0 : 60.0; }
/// Seconds for each later part of a start, which may be large: snapshot, data, model, first step.
inline constexpr double kPromiseOfLoading = 300.0;

/// Writes the first heartbeat of a process, before anything that may hang: libraries are loaded,
/// data and other ranks come later. `promise`: seconds until the next one, 0: none is promised.
void beat_at_start(double promise);

/// Costs one system call per heartbeat; does nothing if the launcher specified no file.
class HeartbeatFile {
 public:
  /// `path` may be empty. A file that cannot be opened is not an error: no launcher reads it then.
  explicit HeartbeatFile(const std::string& path);
  ~HeartbeatFile();
  HeartbeatFile(const HeartbeatFile&) = delete;
  HeartbeatFile& operator=(const HeartbeatFile&) = delete;

  /// Replaces the line by `words`, at most kLength characters of it.
  void beat(std::string_view words);

 private:
  static constexpr std::size_t kLength = 224;
  int fd_ = -1;
};

}  // namespace ddp::train
