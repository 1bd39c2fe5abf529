// Copies what workers write: to files, as whole prefixed lines or raw bytes to the console, and
// keeps the last lines of stderr for the failure report. Belongs into a poll loop; never waits.
#pragma once

#include <poll.h>

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/console_queue.h"
#include "launcher/stream_plan.h"

namespace ddp::launch {

class LogPump {
 public:
  LogPump();
  ~LogPump();
  LogPump(const LogPump&) = delete;
  LogPump& operator=(const LogPump&) = delete;

  /// The descriptor that the worker gets as its stdout or stderr (-1: ddp-run's own). The caller
  /// closes it when the worker has it. Throws LaunchError when a file cannot be opened.
  int open_stream(const StreamPlan& plan, int local_rank, bool is_stderr);

  void add_poll_fds(std::vector<pollfd>& fds) const;
  void handle(const std::vector<pollfd>& fds);

  /// After all workers and their descendants are dead: takes what is left and closes the files of
  /// the round.
  void finish_round();
  /// The last lines that this worker wrote to stderr, the round before finish_round() included.
  std::string last_stderr(int local_rank) const;
  /// A line of ddp-run's own, in order with what workers wrote to stderr.
  void note(const std::string& line);

 private:
  struct Source;

  ConsoleQueue& console(bool is_stderr);
  bool read_some(Source& source);
  void take(Source& source, std::string_view text);
  void take_lines(Source& source, std::string_view text);
  void emit_line(Source& source, std::string_view line);
  void close_source(Source& source);

  long skipped_lines_ = 0;  // not shown on a console that was too slow; they are in their files
  std::unique_ptr<ConsoleQueue> out_;
  std::unique_ptr<ConsoleQueue>
      err_;  // null: the same file as stdout, so that lines of both never mix
  std::list<Source> sources_;
  std::map<int, std::string> stderr_tail_;   // by local rank
  std::map<int, std::string> stderr_files_;  // of streams that go straight into a file
};

}  // namespace ddp::launch
