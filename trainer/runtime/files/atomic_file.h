// Publishes a file by rename, so that readers see either the old or the new content, never a part.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace ddp::train {

/// A file with a temporary name next to `path`, written sequentially. If destroyed without
/// commit(), nothing is left.
class AtomicFile {
 public:
  /// Creates `<path>.tmp.<pid>`. `durable`: commit() waits for the disk, so that the file survives
  /// a crash of the system. Throws RunError with the path and the reason, also where `path` is a
  /// device or a pipe.
  explicit AtomicFile(std::string path, bool durable = true);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `size` bytes. Throws RunError (disk full, quota, I/O error).
  void write(const void* data, std::size_t size);

  /// Overwrites earlier bytes, such as a header that counts what follows it.
  void overwrite(std::size_t offset, const void* data, std::size_t size);

  /// The name until commit().
  const std::string& temporary() const { return temporary_; }

  /// fsyncs what was written so far. Throws RunError.
  void sync();

  /// sync(), if durable; keeps an existing file as `keep_previous_as` (unless empty); renames;
  /// fsyncs the folder, if durable. At any moment at least one of `path` and `keep_previous_as` is
  /// a complete file.
  void commit(const std::string& keep_previous_as = "");
  /// The same, unless `check` throws. After another process's revoke_temporaries() neither name
  /// changes any more, wherever this process was suspended since the check.
  void commit(const std::string& keep_previous_as, const std::function<void()>& check);

 private:
  std::string path_;
  std::string temporary_;
  bool durable_;
  int fd_ = -1;
};

/// Publishes `text` as the content of `path`. Throws RunError.
void publish_text(const std::string& path, const std::string& text);
/// The same; returns at once if it has that content already.
void publish_if_changed(const std::string& path, const std::string& text);

/// Renames, and makes the new name durable. Throws RunError.
void move_file(const std::string& from, const std::string& to);

/// Whether the file exists. Throws UnreadableError if that cannot be determined.
bool file_exists(const std::string& path);

/// The files in the folder of `path`; none if there is no such folder. Throws UnreadableError.
std::vector<std::string> files_next_to(const std::string& path);
/// Those whose names begin with that of `path` and `suffix`.
std::vector<std::string> files_with(const std::string& path, const std::string& suffix);

/// Removes `<path>.tmp.<pid>` files left by killed processes; returns how many. Call at startup
/// only: an AtomicFile still open in this process would lose its file. Throws UnreadableError.
int remove_stale_temporaries(const std::string& path);

/// Removes those of other live processes: the files that they are writing, suspended or not, can no
/// longer take the name. Returns how many.
int revoke_temporaries(const std::string& path);

}  // namespace ddp::train
