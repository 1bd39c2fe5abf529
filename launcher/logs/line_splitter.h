// Bytes as they come from a pipe -> whole lines. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::launch {

class LineSplitter {
 public:
  /// A line is cut only beyond `longest` bytes.
  explicit LineSplitter(std::size_t longest = 16 << 20) : longest_(longest) {}

  /// Takes bytes from the front of `text` up to the end of a line, which `\n`, `\r` or `\r\n` is (a
  /// progress bar's `\r` ends a line, too). False: `text` is used up and its last, unfinished line
  /// kept. `line` holds until the next call.
  bool next(std::string_view& text, std::string_view& line);
  /// At the end of the stream: what no line end followed. Empty when there is nothing.
  std::string_view rest();

 private:
  std::size_t longest_;
  std::string kept_;
  bool kept_is_out_ = false;   // kept_ was given out and may be cleared
  bool after_return_ = false;  // the last byte was '\r': a '\n' now ends no further line
};

}  // namespace ddp::launch
