// A rotating log file with one writer: stdout.log, stdout.log.1 (older), ... After open() it
// belongs to FileWriter's thread, as all its calls may block.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/base/system/descriptors.h"

namespace ddp::launch {

struct Rotation {
  std::uint64_t max_bytes = 0;  // of one file; 0: never rotate
  int keep = 3;                 // number of older files
};

class LogFile {
 public:
  /// Opens the file, emptied if `truncate`. Throws LaunchError.
  void open(const std::string& path, Rotation rotation, bool truncate);
  /// Writes all bytes. Rotation moves an unfinished line to the new file; only a line longer than a
  /// file is cut. Returns 0, or the errno of the write that failed: the rest is lost.
  int write(std::string_view text);
  /// Releases the open descriptor to the caller.
  Descriptor release() { return std::move(fd_); }

 private:
  std::size_t fits(std::string_view text) const;
  bool move_aside() const;
  int write_all(std::string_view text);
  int rotate();
  int copy_from(int reader, std::uint64_t begin, std::uint64_t end);

  std::string path_;
  Rotation rotation_;
  Descriptor fd_;
  std::uint64_t size_ = 0;
  std::uint64_t line_begin_ = 0;  // offset of the unfinished line; size_ if there is none
};

}  // namespace ddp::launch
