// Writes files in a separate thread, so that a blocked disk (a frozen file system, an unreachable
// file server) does not block the poll loop. A file on such a disk delays the others. All functions
// are for the poll loop's thread; forked children must not call them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

class FileWriter {
 public:
  /// Writes all of the text and returns 0, or an errno: the rest of the file is then dropped. Owns
  /// the descriptor. Called and, once the file is closed, destroyed by the thread.
  using Write = std::function<int(std::string_view)>;
  struct File;
  using FilePtr = std::shared_ptr<File>;
  struct Failure {
    FilePtr file;
    std::string name;
    int error = 0;
    std::string rest;  // the last bytes appended: all that were not written, and perhaps more
  };

  FileWriter();
  /// Does not wait: pending data is lost unless is_idle().
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  /// Adds an open file. `name` is for messages.
  static FilePtr open(std::string name, Write write);
  /// Queues the text, even an empty one, after earlier text of the file. The first call starts the
  /// thread; if that fails, it writes synchronously.
  void append(const FilePtr& file, std::string_view text);
  /// The same without a copy; spare_buffer() returns such strings again.
  void append(const FilePtr& file, std::string&& text);
  /// Returns a string that is no longer used, with arbitrary contents.
  std::string spare_buffer();
  /// Closes the file after its last byte, and resets `file`; it may be null.
  void close(FilePtr& file);

  /// Number of the file's bytes that have been written and can be read back.
  std::uint64_t written(const File& file) const;
  /// Number of the file's bytes that are still to be written.
  std::size_t waiting(const File& file) const;

  /// Number of bytes of all files that are still to be written.
  std::size_t waiting() const;
  /// Whether so much is pending that producers should wait.
  bool is_long() const { return waiting() > kLong; }
  /// Whether all files are written, and the closed ones closed; or given up.
  bool is_idle() const;
  /// Name of the file being written, or the next one; empty: all is written.
  std::string current() const;

  /// Changes whenever the thread has written something.
  std::uint64_t progress() const;
  /// Poll it for POLLIN, then call take_failures(). Ready after a failure and, with
  /// `wants_progress`, once progress() is no longer `seen`. -1: no thread.
  int wait_fd(bool wants_progress, std::uint64_t seen);
  /// Returns the failures since the last call.
  std::vector<Failure> take_failures();
  struct Lost {
    std::string file;  // the current()
    std::size_t bytes = 0;
  };
  /// Discards pending and future text. Returns nullopt, and changes nothing, if all is
  /// written.
  std::optional<Lost> give_up();

 private:
  struct Shared;
  static constexpr std::size_t kLong = 4 << 20;

  void append_part(const FilePtr& file, std::string_view text, std::string* whole);
  static void* run(void* shared);
  bool has_thread();

  const std::shared_ptr<Shared> shared_;
};

}  // namespace ddp::launch
