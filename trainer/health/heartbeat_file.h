// Signs of life for the launcher: one line in the file that DDP_HEARTBEAT_FILE names. The contract
// is in launcher/README.md.
#pragma once

#include <string>
#include <string_view>

namespace ddp::train {

/// Costs one system call each; does nothing when the launcher named no file.
class HeartbeatFile {
 public:
  /// `path` may be empty. A file that cannot be opened is no error: nobody looks for it then.
  explicit HeartbeatFile(const std::string& path);
  ~HeartbeatFile();
  HeartbeatFile(const HeartbeatFile&) = delete;
  HeartbeatFile& operator=(const HeartbeatFile&) = delete;

  /// Replaces the line by `words`, at most kLength characters of it.
  void beat(std::string_view words);

 private:
  static constexpr std::size_t kLength = 160;
  int fd_ = -1;
};

}  // namespace ddp::train
