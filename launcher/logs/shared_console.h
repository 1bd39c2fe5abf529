// Raw output of several workers on one console: no line is torn, and on a terminal an unfinished
// one, such as a progress bar or a prompt, stays below the lines of all other workers. Pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace ddp::launch {

class SharedConsole {
 public:
  /// A worker's stdout or stderr.
  struct Writer {
    int local_rank = 0;
    bool is_stderr = false;
    auto operator<=>(const Writer&) const = default;
  };

  explicit SharedConsole(bool terminal = false) : terminal_(terminal) {}

  /// Call before the writer's first text.
  void join(Writer writer) { ranks_.insert(writer.local_rank); }
  /// Returns the part of the writer's text to print now: all of it, unless it would tear a line of
  /// another worker; then whole lines only.
  std::string take(Writer writer, std::string_view text);
  /// Returns the text to print for a message of ddp-run itself, which ends with a newline.
  std::string take_note(std::string_view text) const;
  /// Ends the writer's stream. Returns the text that was held back.
  std::string leave(Writer writer);

 private:
  bool has_last() const { return last_of_.local_rank >= 0; }
  bool covers_bar(Writer writer, std::string_view text) const;
  void follow(Writer writer, std::string_view text);
  std::string whole_lines(Writer writer, std::string_view text);

  bool terminal_;
  std::set<int> ranks_;
  std::map<Writer, std::string> held_;  // unfinished lines that are not shown yet
  std::string last_;       // a terminal's last line if it is unfinished, from its last '\r'
  Writer last_of_ = {-1};  // its writer; {-1}: there is none
};

}  // namespace ddp::launch
