// Shows one stream's lines on the console: from memory while the console keeps up, from the log
// file when it does not, so that a slow console neither delays workers nor loses lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/base/system/descriptors.h"
#include "launcher/logs/console_queue.h"
#include "launcher/logs/file_writer.h"
#include "launcher/logs/line_splitter.h"
#include "launcher/logs/repeat_folding.h"
#include "launcher/logs/stream_plan.h"

namespace ddp::launch {

class ConsoleLines {
 public:
  /// `folding`: nullptr if lines are not folded. Both must outlive this object, and so must
  /// `files`, which writes `log`; nullptr: there is no log file.
  ConsoleLines(const StreamPlan& plan, int local_rank, ConsoleQueue& queue, RepeatFolding* folding,
               const FileWriter& files, FileWriter::FilePtr log);

  /// Adds output of the worker that was appended to the log file. `wait`: other streams come first.
  void take(std::string_view text, bool wait);
  /// If this log file failed, shows the backlog, and no longer reads the file.
  void absorb(const FileWriter::Failure& failure);
  /// Marks the end of the stream.
  void end();

  bool is_behind() const { return shown_ < written_; }
  /// Reads more of the log file, if the console can take it.
  void catch_up();
  /// Whether it must be called again without an event, as neither console nor log file will cause
  /// one.
  bool needs_turn() const {
    return is_behind() && queue_.waiting_fd() < 0 && !queue_.is_long() && readable() > 0;
  }
  bool has_ended() const { return ended_; }
  /// Whether the stream has ended and was passed to the console completely.
  bool is_done() const { return ended_ && !is_behind(); }

  /// Number of lines skipped because no file holds them for later.
  long skipped() const { return skipped_; }

 private:
  const std::string& prefix();
  void show(std::string_view text);
  void show_line(std::string_view line);
  std::uint64_t readable() const;
  void read_part();
  void finish();

  LinePrefix prefix_;
  std::vector<int> rank_;  // one entry
  ConsoleQueue& queue_;
  RepeatFolding* folding_;
  bool may_skip_;  // a file holds the lines, even if it cannot be read back
  const FileWriter& files_;
  FileWriter::FilePtr log_;
  Descriptor file_;  // the log file, for reading
  std::uint64_t written_ = 0;
  std::uint64_t shown_ = 0;
  bool ended_ = false;
  long skipped_ = 0;
  LineSplitter lines_;
  std::string prefix_text_;
  LinePrefix::Time prefix_time_;  // of prefix_text_
};

}  // namespace ddp::launch
