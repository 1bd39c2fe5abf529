// Publishes a file by rename, so that a reader sees the old content or the new, whole, never a
// part.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace ddp::train {

/// A file under a temporary name beside `path`, written in order. Destroyed without commit():
/// nothing is left.
class AtomicFile {
 public:
  /// Creates `<path>.tmp.<pid>`. Throws RunError that names the path and the system's reason.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `size` bytes. Throws RunError (disk full, quota, I/O error).
  void write(const void* data, std::size_t size);

  /// Writes over bytes that were written before, such as a header that counts what follows it.
  void overwrite(std::size_t offset, const void* data, std::size_t size);

  /// fsync of what was written so far. Throws RunError.
  void sync();

  /// sync(), keep the present file of that name as `keep_previous_as` (when not empty and there is
  /// one), rename, fsync of the folder. At every moment between, at least one of `path` and
  /// `keep_previous_as` is a whole file.
  void commit(const std::string& keep_previous_as = "");

 private:
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

/// Renames, and makes the new name durable. Throws RunError.
void move_file(const std::string& from, const std::string& to);

/// Removes `<path>.tmp.<pid>` that a killed process left behind; returns how many. For the start of
/// a program: an AtomicFile of this process that is still open would lose its file.
int remove_stale_temporaries(const std::string& path);

}  // namespace ddp::train
