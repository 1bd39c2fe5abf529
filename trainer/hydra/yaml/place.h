// The place where a value was written, and errors that begin with it.
#pragma once

#include <fmt/core.h>

#include <memory>
#include <string>
#include <utility>

namespace ddp::train {

/// The source of a value: a file with line and column (from 1), or an override on the command
/// line.
struct Place {
  std::shared_ptr<const std::string> source;
  int line = 0;
  int column = 0;

  static Place of_override(const std::string& text);

  /// "cfg.yaml:12:3", "command line: a.b=1", or "" when unknown.
  std::string str() const;
};

/// Throws UserError: the place, where there is one, and the text, without the key that it begins
/// with ("a.b: is ...") if the override contains that already.
[[noreturn]] void fail_with(const Place& place, const std::string& text);

template <class... Args>
[[noreturn]] void fail_at(const Place& place, fmt::format_string<Args...> text, Args&&... args) {
  fail_with(place, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace ddp::train
