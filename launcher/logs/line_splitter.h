// Splits bytes from a pipe into whole lines. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::launch {

class LineSplitter {
 public:
  /// Lines longer than `longest` bytes are cut.
  explicit LineSplitter(std::size_t longest = 16 << 20) : longest_(longest) {}

  /// Consumes `text` up to the end of a line: `\n`, `\r\n`, or `\r` (progress bars). Returns false
  /// once `text` is used up, and keeps its unfinished last line. `line` is valid until the next
  /// call.
  bool next(std::string_view& text, std::string_view& line);
  /// Returns the unfinished last line at the end of the stream; may be empty.
  std::string_view rest();

 private:
  std::size_t longest_;
  std::string kept_;
  bool kept_is_out_ = false;   // kept_ was returned and may be cleared
  bool after_return_ = false;  // the last byte was '\r', so a '\n' ends no further line
};

}  // namespace ddp::launch
