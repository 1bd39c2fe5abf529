// Lines for files, pipes and terminals that may stand still (Ctrl-S, a pager, a dead disk): a
// thread of its own writes them, and nobody waits for it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace ddp::train {

/// Keeps the order of all lines while every stream takes them; where one stands still, the others
/// go on. Does not filter, and does not open anything.
class LineWriter {
 public:
  /// What waits for one stream. Beyond it the older half goes, and its number of lines is written
  /// in its place.
  static constexpr std::size_t kMostBytes = std::size_t{256} * 1024;

  struct Stream {
    int fd = -1;
    std::string name;    ///< For the line that says that it is closed.
    bool owned = false;  ///< Closed when the last line has been written or given up.
    /// A terminal, the same for all such streams: lines go above what set_live_line() shows there.
    bool terminal = false;
  };

  /// `elsewhere`: said where lines are missing, such as "main.log has them"; may be empty. The
  /// thread starts with the first line.
  explicit LineWriter(std::vector<Stream> streams, std::string elsewhere = "");
  /// As flush(); what is left then is given up.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  /// Never waits for the stream. A stream whose reader is gone (`| head`) takes no more lines,
  /// which one of the others says once. From any thread.
  void write(int fd, std::string line);

  /// The text after the last line on the first stream, without an end of line, in place of the one
  /// before; "" takes it away. Only the newest is written, as soon as the terminal takes it.
  void set_live_line(std::string text);

  /// Waits until all lines are written; not when nothing has been taken for 2 s, and 10 s at most.
  /// True when nothing is left.
  bool flush();

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's as well: it may be stuck in a write for ever
};

}  // namespace ddp::train
