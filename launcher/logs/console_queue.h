// One of ddp-run's output streams; writing never blocks on its reader or its disk.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/base/system/descriptors.h"
#include "launcher/logs/file_writer.h"

namespace ddp::launch {

class ConsoleQueue {
 public:
  /// Writes to the file of `fd` through a descriptor of its own if possible: O_NONBLOCK on a
  /// shared one would affect the shell and other programs on the terminal. `files` writes it if it
  /// is a regular file; nullptr: it is written directly, and may block.
  explicit ConsoleQueue(int fd, FileWriter* files = nullptr);

  /// Queues the text for write_some() or a later append().
  void append(std::string_view text);
  /// "<prefix><line>\n", queued as by append().
  void append_line(std::string_view prefix, std::string_view line);
  /// Queues the text and writes as much as possible without blocking.
  void add(std::string_view text);
  /// Poll it for POLLOUT and call write_some(); -1: nothing is queued.
  int waiting_fd() const { return queue_.empty() ? -1 : fd_; }
  void write_some();
  /// Whether so much is queued that producers should wait if they can.
  bool is_long() const { return waiting() > kLong; }
  /// The regular file that `files` writes; nullptr: none.
  const FileWriter::File* file() const { return file_.get(); }
  /// Whether so much is queued that nothing more should be added.
  bool is_full() const { return waiting() > kFull; }
  /// Discards text not yet written.
  void drop();
  /// errno of the first failed write, except for a missing reader (EPIPE); 0: none.
  int error() const { return *error_; }
  bool reader_has_exited() const { return reader_has_exited_; }

 private:
  enum class Way { kNonblocking, kSocket, kCareful, kPlain };
  static constexpr std::size_t kLong = 4 << 20;
  static constexpr std::size_t kFull = 64 << 20;

  std::size_t waiting() const;
  long write_once();
  void drop_written();

  int fd_;
  Descriptor own_;  // fd_, if it is not shared
  Way way_;
  FileWriter* files_;
  FileWriter::FilePtr file_;
  std::string queue_;
  // Shared with the thread of `files`, which may outlive the queue.
  const std::shared_ptr<std::atomic<int>> error_ = std::make_shared<std::atomic<int>>(0);
  bool reader_has_exited_ = false;
  std::size_t written_ = 0;  // of queue_
  std::size_t tried_ = 0;    // length of queue_ at the last attempt to write
};

}  // namespace ddp::launch
