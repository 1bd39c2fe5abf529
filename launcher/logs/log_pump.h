// Copies what workers write: to files, as whole prefixed lines or raw bytes to the console, and
// keeps the last lines of stderr for the failure report. Belongs into a poll loop; never waits.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/logs/console_lines.h"
#include "launcher/logs/console_queue.h"
#include "launcher/logs/repeat_folding.h"
#include "launcher/logs/stream_plan.h"

namespace ddp::launch {

class LogPump {
 public:
  using Time = RepeatFolding::Time;

  LogPump();
  ~LogPump();
  LogPump(const LogPump&) = delete;
  LogPump& operator=(const LogPump&) = delete;

  /// The descriptor that the worker gets as its stdout or stderr (-1: ddp-run's own). The caller
  /// closes it when the worker has it. Throws LaunchError when a file cannot be opened.
  int open_stream(const StreamPlan& plan, int local_rank, bool is_stderr);

  void add_poll_fds(std::vector<pollfd>& fds);
  /// When handle() is due though no descriptor is ready.
  std::optional<Time> deadline() const;
  void handle(const std::vector<pollfd>& fds);

  /// After all workers and their descendants are dead: takes what is left and closes the files of
  /// the round. Does not wait for a slow console.
  void finish_round();
  /// Writes what the console has not taken yet, for as long as its reader takes something.
  /// Gives up when the reader takes nothing for some seconds, or when `give_up` says so; it is
  /// asked whenever one of `interrupts` is readable. True: the console has taken all.
  bool flush_console(const std::vector<int>& interrupts = {},
                     const std::function<bool()>& give_up = {});
  /// Forgets it: nobody is left to read.
  void drop_console();
  /// The last lines that this worker wrote to stderr, the round before finish_round() included.
  std::string last_stderr(int local_rank) const;
  /// When something that this worker wrote was first copied, after the round as well.
  std::optional<Clock::time_point> first_output(int local_rank) const;
  /// When something that this worker wrote was last copied; the epoch: never in this round.
  Clock::time_point last_output(int local_rank) const;
  /// Until when a console that is far behind has kept a worker from writing: now, if it still does;
  /// the epoch: never.
  Clock::time_point held_up_until() const;
  /// A line of ddp-run's own, in order with what workers wrote to stderr.
  void note(const std::string& line);
  /// Text as it is, in the same order.
  void print(const std::string& text);

 private:
  struct Source;

  ConsoleQueue& console(bool is_stderr) const;
  std::list<ConsoleLines>& shown_on(bool is_stderr);
  void open_copy(Source& source);
  bool read_some(Source& source);
  void take(Source& source, std::string_view text);
  void copy_if_wanted(Source& source, std::string_view line);
  void write_file(Source& source, LogFile& file, std::string_view text);
  void close_source(Source& source);
  RepeatFolding* folding_for(const StreamPlan& plan, bool is_stderr);
  void settle();
  void show_more(std::list<ConsoleLines>& shown);
  void write_consoles();
  bool is_console_waiting() const;

  long skipped_lines_ = 0;  // not shown on a console that was too slow; they are in their files
  std::unique_ptr<ConsoleQueue> out_;
  std::unique_ptr<ConsoleQueue>
      err_;  // null: the same file as stdout, so that lines of both never mix
  std::list<Source> sources_;
  std::unique_ptr<RepeatFolding>
      folding_[2];  // of stdout and of stderr; null: lines are not folded
  // By console, as console() has it: of this round, behind what earlier ones have left.
  std::list<ConsoleLines> shown_[2];
  LinePrefix fold_prefix_;
  std::vector<char> buffer_;
  std::string scratch_;
  Clock::time_point held_up_until_{};
  std::map<int, Clock::time_point> first_output_;  // by local rank
  std::map<int, Clock::time_point> last_output_;   // by local rank
  std::map<int, std::string> stderr_tail_;         // by local rank
  std::map<int, std::string> stderr_files_;        // of streams that go straight into a file
};

}  // namespace ddp::launch
