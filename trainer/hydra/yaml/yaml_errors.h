// The text of a YAML file for error messages: positions, lines, and rewording of yaml-cpp's errors.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trainer/hydra/yaml/tree.h"

namespace YAML {  // NOLINT(readability-identifier-naming): yaml-cpp's
class Exception;
struct Mark;
}  // namespace YAML

namespace ddp::train {

class YamlText {
 public:
  /// Throws UserError for invalid UTF-8 and control characters.
  YamlText(std::string_view text, const std::string& source);

  /// The text with an ending that makes yaml-cpp notice an open quote.
  std::string for_parser() const;

  Place place(const YAML::Mark& mark) const;
  /// The byte at the mark; 0 past the end.
  char at(const YAML::Mark& mark) const;
  /// A quote is the very last character, which yaml-cpp reads as an empty string.
  bool ends_with_open_quote(const YAML::Mark& mark) const;

  /// The [ or { at the mark has no counterpart in the rest of the text.
  bool is_never_closed(const YAML::Mark& bracket) const;
  [[noreturn]] void fail_bracket(const YAML::Mark& bracket) const;
  /// For a second document, which `---` starts, or text after the `...` of the first.
  [[noreturn]] void fail_document(const YAML::Mark& start) const;

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what,
                         const std::string& fix) const;
  /// Throws yaml-cpp's error in our words. `bracket` is an open [ or {, or nullptr; `last` is where
  /// the last value or key begins.
  [[noreturn]] void fail(const YAML::Exception& error, const YAML::Mark* bracket,
                         const YAML::Mark& last) const;

 private:
  YAML::Mark mark_at(std::size_t pos) const;
  std::string_view line(int number) const;
  [[noreturn]] void fail_quote(const YAML::Mark& last) const;
  [[noreturn]] void fail_colon(const YAML::Mark& mark) const;
  void check_tab(const YAML::Mark& mark) const;
  void check_late_quote(const YAML::Mark& mark, const YAML::Mark& last) const;

  std::string text_;
  std::shared_ptr<const std::string> source_;
};

}  // namespace ddp::train
