// Copies workers' output to files and, as prefixed lines or raw bytes, to the console, and keeps
// the last lines of stderr for the failure report. Runs in a poll loop, in which open_stream()
// waits for a disk, unless prepare() has.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/logs/console_lines.h"
#include "launcher/logs/console_queue.h"
#include "launcher/logs/file_writer.h"
#include "launcher/logs/repeat_folding.h"
#include "launcher/logs/shared_console.h"
#include "launcher/logs/stream_plan.h"

namespace ddp::launch {

class LogPump {
 public:
  using Time = RepeatFolding::Time;

  LogPump();
  ~LogPump();

  /// Has the files' thread create folders and open the files of these streams, for open_stream().
  /// `create_folders` may throw.
  void prepare(std::function<void()> create_folders, std::vector<StreamPlan> plans);
  bool is_prepared() const { return !prepared_ || prepared_->done; }
  /// Throws what has failed in prepare(), once.
  void check_prepared();

  /// Returns the descriptor for a worker's stdout or stderr (none: ddp-run's own), to be inherited.
  /// Throws LaunchError if a file cannot be opened.
  Descriptor open_stream(const StreamPlan& plan, int local_rank, bool is_stderr);

  /// Sets the workers' pseudo-terminals to the console's current size.
  void resize_terminals();

  /// `wants_progress`: to be woken once the files' thread has done something.
  void add_poll_fds(std::vector<pollfd>& fds, bool wants_progress = false);
  /// When handle() is due even if no descriptor is ready.
  std::optional<Time> deadline() const;
  void handle(const std::vector<pollfd>& fds);

  /// errno of the first failed write to the console, such as ENOSPC, except for a missing reader
  /// (EPIPE); EIO: flush() has given up on its disk; 0: none.
  int console_error() const;
  /// Has the files' thread read the end of a stderr that is redirected straight to a file.
  void worker_ended(int local_rank);
  /// Call after all workers and their descendants are dead: drains the pipes and closes the round's
  /// files. Does not wait for a slow console or disk.
  void finish_round();
  /// Returns a function that appends to another file, written by the log files' thread.
  std::function<void(const std::string&)> open_file(std::string name, FileWriter::Write write);
  enum class Patience { kSeconds, kUnlimited };
  /// Writes the rest to the files, and to the console while its reader makes progress. Drops it,
  /// and returns false, if the reader pauses for longer than the patience, or `give_up`, called
  /// when one of `interrupts` is readable, returns true. Waits for files without limit if there are
  /// `interrupts`.
  bool flush(Patience patience, const std::vector<int>& interrupts = {},
             const std::function<bool()>& give_up = {});
  /// Whether flush() has given up on files: their disk blocks.
  bool files_given_up() const { return files_given_up_; }
  /// Discards output not yet written to the console.
  void drop_console();
  /// The last lines this worker wrote to stderr, in the current or the last finished round.
  std::string last_stderr(int local_rank) const;
  /// When output of this worker was first copied; still valid after the round.
  std::optional<Clock::time_point> first_output(int local_rank) const;
  /// When output of this worker was last copied; the epoch: never in this round.
  Clock::time_point last_output(int local_rank) const;
  /// Until when a slow console blocked a worker's writes: now if it still does, the epoch if it
  /// never did.
  Clock::time_point held_up_until() const;
  /// Prints a line of ddp-run itself, in order with the workers' stderr.
  void note(const std::string& line);
  /// Prints text verbatim, in the same order.
  void print(const std::string& text);

 private:
  struct Source;

  ConsoleQueue& console(bool is_stderr) const;
  std::list<ConsoleLines>& shown_on(bool is_stderr);
  SharedConsole& shared(bool is_stderr) { return shared_[is_stderr && err_ ? 1 : 0]; }
  std::shared_ptr<LogFile> take_log(const std::string& path, Rotation rotation, bool truncate);
  FileWriter::FilePtr open_log(const std::string& path, Rotation rotation, bool truncate);
  void open_copy(Source& source);
  void sort_sources();
  bool read_some(Source& source);
  void take(Source& source, std::string_view text);
  void write_file(Source& source, std::size_t size);
  void copy_if_wanted(Source& source, std::string_view line);
  void close_source(Source& source);
  RepeatFolding* folding_for(const StreamPlan& plan, bool is_stderr);
  std::array<FileWriter*, 3> writers() { return {&console_files_[0], &console_files_[1], &files_}; }
  bool must_wait(const Source& source) const;
  bool needs_turn() const;
  void read_redirected();
  void settle();
  void note_failures();
  void note_backlog();
  /// Local ranks that have printed what is not read now.
  std::set<int> held_up() const;
  bool is_flushed() const;
  void note_wait();
  void give_up_files();
  void show_more(std::list<ConsoleLines>& shown);
  void write_consoles();
  bool is_console_waiting() const;

  static constexpr std::chrono::seconds kNotableBacklog{5};
  static constexpr std::size_t kTail = 16 << 10;  // bytes of stderr kept for the report

  struct Prepared {
    std::atomic<bool> done = false;
    std::multimap<std::string, std::shared_ptr<LogFile>> files{};
    std::exception_ptr problem{};
  };

  FileWriter files_;
  FileWriter console_files_[2];  // of stdout and of stderr: each disk may block alone
  bool files_given_up_ = false;
  bool console_given_up_ = false;
  std::optional<Clock::time_point> backlog_since_;  // workers wait for the disk of the log files
  bool backlog_noted_ = false;
  std::array<std::uint64_t, 3> seen_{};  // progress() of writers() before the last settle()
  long skipped_lines_ = 0;               // omitted on a slow console, present in the log files
  std::unique_ptr<ConsoleQueue> out_;
  std::unique_ptr<ConsoleQueue>
      err_;  // null: the same file as stdout, so that their lines never mix
  std::list<Source> sources_;
  std::shared_ptr<Prepared> prepared_;  // files that no source has taken yet; null: none
  std::unique_ptr<RepeatFolding>
      folding_[2];                // of stdout and of stderr; null: lines are not folded
  SharedConsole shared_[2];       // of raw output, by console as in console()
  bool reader_is_noted_ = false;  // stdout's has exited
  // By console, as in console(): leftovers of earlier rounds, then this round's.
  std::list<ConsoleLines> shown_[2];
  LinePrefix fold_prefix_;
  std::string buffer_;
  std::string scratch_;
  Clock::time_point held_up_until_{};
  std::map<int, Clock::time_point> first_output_;  // by local rank
  std::map<int, Clock::time_point> last_output_;   // by local rank
  std::map<int, std::string> stderr_tail_;         // by local rank
  // Streams redirected straight to a file; what is read of them once their worker has ended.
  struct Redirected {
    std::string path{};
    bool ended = false;
    std::atomic<bool> read = false;
    std::string end{};
  };
  std::map<int, std::shared_ptr<Redirected>> stderr_files_;
};

}  // namespace ddp::launch
