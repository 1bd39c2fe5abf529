// A rotating log file with one writer: stdout.log, stdout.log.1 (older), ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::launch {

struct Rotation {
  std::uint64_t max_bytes = 0;  // of one file; 0: never rotate
  int keep = 3;                 // older files
};

class LogFile {
 public:
  LogFile() = default;
  ~LogFile() { close(); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// `truncate`: starts an empty file, else appends. Throws LaunchError.
  void open(const std::string& path, Rotation rotation, bool truncate);
  bool is_open() const { return fd_ >= 0; }
  /// Writes all bytes. Rotation moves an unfinished line to the new file; only a line longer than a
  /// file is cut. False, once, if the disk refuses: the rest is lost, and error() says why.
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
  std::uint64_t line_begin_ = 0;  // start of the unfinished line; size_: none
  std::string error_;
};

}  // namespace ddp::launch
