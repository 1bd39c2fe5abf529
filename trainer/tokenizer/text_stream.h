// Converts the bytes that a model generates to text that can be shown at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::train {

/// Holds back text that may still change: incomplete characters, and possible beginnings of a
/// stop string. Bytes that are not UTF-8 become U+FFFD, as in Python's
/// bytes.decode(errors="replace").
class TextStream {
 public:
  /// `stops`: none of them empty; the text ends before the first that occurs in it.
  explicit TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Returns the additional text that is final now.
  std::string add(std::string_view bytes);
  /// Whether a stop string has occurred; nothing follows.
  bool stopped() const { return stopped_; }
  /// Returns the rest at the end of the input.
  std::string finish();

 private:
  std::string release(std::size_t count);
  std::size_t possible_stop() const;

  std::vector<std::string> stops_;
  std::string bytes_;  // not a whole character yet
  std::string text_;   // may begin a stop string
  bool stopped_ = false;
};

}  // namespace ddp::train
