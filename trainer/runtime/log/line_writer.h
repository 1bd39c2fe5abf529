// Writes lines to files, pipes and terminals that may stall (Ctrl-S, a pager, a dead disk) on its
// own thread, so that no one waits for them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace ddp::train {

/// Preserves the order of all lines while every stream accepts them; if one stalls, the others
/// continue. Neither filters nor opens anything.
class LineWriter {
 public:
  /// Queue limit per stream. Beyond it the older half is dropped and replaced by its line count.
  static constexpr std::size_t kMostBytes = std::size_t{256} * 1024;

  struct Stream {
    int fd = -1;
    std::string name;    ///< Used in the line that reports it as closed.
    bool owned = false;  ///< Closed once the last line is written or dropped.
    /// A terminal, the same for all such streams: lines go above what set_live_line() shows there.
    bool terminal = false;
  };

  /// `elsewhere`: appended where lines are missing, e.g. "main.log has them"; may be empty. The
  /// thread starts with the first line.
  explicit LineWriter(std::vector<Stream> streams, std::string elsewhere = "");
  /// Like flush(); drops whatever remains.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  /// Never blocks on the stream. A stream whose reader has exited (`| head`) gets no more lines,
  /// which another one reports once. Thread-safe.
  void write(int fd, std::string line);

  /// Sets the text after the last line on the first stream, without an end of line, replacing the
  /// previous one; "" removes it. Only the newest is written, as soon as the terminal accepts it.
  void set_live_line(std::string text);

  /// Waits until all lines are written, unless there is no progress for 2 s; 10 s at most. True if
  /// nothing is left.
  bool flush();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may be stuck in a write forever
};

}  // namespace ddp::train
