// A file that grows by whole records: a record truncated by a full disk is removed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/runtime/files/descriptor.h"

namespace ddp::train {

class AppendFile {
 public:
  /// Creates the file if it does not exist yet. Throws RunError with the path and the reason.
  explicit AppendFile(std::string path);

  /// Appends the whole record or, with a RunError, nothing. No fsync: it survives the process but
  /// not a crash of the machine.
  void append(std::string_view record);
  /// Truncates the file to that many bytes. Throws RunError.
  void truncate(int64_t size);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }

 private:
  [[noreturn]] void fail(const char* what, int error) const;

  std::string path_;
  Descriptor fd_;
  int64_t size_ = 0;
};

}  // namespace ddp::train
