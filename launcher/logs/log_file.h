// A rotating log file with one writer: stdout.log, stdout.log.1 (older), ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::launch {

struct Rotation {
  std::uint64_t max_bytes = 0;  // of one file; 0: never rotate
  int keep = 3;                 // number of older files
};

class LogFile {
 public:
  LogFile() = default;
  ~LogFile() { close(); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Opens the file, emptied if `truncate`. Throws LaunchError.
  void open(const std::string& path, Rotation rotation, bool truncate);
  bool is_open() const { return fd_ >= 0; }
  /// Writes all bytes. Rotation moves an unfinished line to the new file; only a line longer than a
  /// file is cut. Returns false, once, if a write fails: the rest is lost, and error() is set.
  bool write(std::string_view text);
  const std::string& error() const { return error_; }
  const std::string& path() const { return path_; }
  void close();
  /// Releases the open descriptor to the caller.
  int release();

 private:
  bool write_all(std::string_view text);
  std::size_t fits(std::string_view text) const;
  bool move_aside() const;
  bool rotate();
  bool copy_from(int reader, std::uint64_t begin, std::uint64_t end);

  std::string path_;
  Rotation rotation_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::uint64_t line_begin_ = 0;  // offset of the unfinished line; size_ if there is none
  std::string error_;
};

}  // namespace ddp::launch
