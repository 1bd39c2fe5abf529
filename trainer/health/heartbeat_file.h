// Heartbeats for the launcher: one line in the file DDP_HEARTBEAT_FILE. The contract is in
// launcher/README.md.
#pragma once

#include <string>
#include <string_view>

#include "trainer/runtime/files/descriptor.h"

namespace ddp::train {

/// Seconds for each part of a start: program, connections, snapshot and data, model, first step.
/// With `gpu`, which has gigabytes of libraries to load and waits that look like work, longer.
constexpr double promise_of_start(bool gpu) { return gpu ? 300.0 : 60.0; }

/// Writes the first heartbeat of a process, before anything that may hang: libraries are loaded,
/// data and other ranks come later. `promise`: seconds until the next one, 0: none is promised.
void beat_at_start(double promise);

/// Costs one system call per heartbeat; does nothing if the launcher specified no file.
class HeartbeatFile {
 public:
  /// `path` may be empty. A file that cannot be opened is not an error: no launcher reads it then.
  explicit HeartbeatFile(const std::string& path);

  bool is_open() const { return fd_ >= 0; }
  /// Replaces the line by `words`, at most kLength characters of it.
  void beat(std::string_view words);

 private:
  static constexpr std::size_t kLength = 224;
  Descriptor fd_;
};

}  // namespace ddp::train
