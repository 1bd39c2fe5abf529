#include "trainer/runtime/files/json_error.h"

#include <fmt/format.h>

#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

/// What stands between `before` and the next `after`; "" without both.
std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return "";
  text.remove_prefix(at + before.size());
  return text.substr(0, text.find(after));
}

}  // namespace

std::string plain_json_error(std::string_view text) {
  constexpr std::string_view kMark = "[json.exception.";
  const std::size_t mark = text.find(kMark);
  if (mark == std::string_view::npos) return std::string(text);
  const std::string before(text.substr(0, mark));
  const std::string_view kind = between(text.substr(mark), kMark, "]");
  const std::string_view what = between(text.substr(mark), "] ", "\n");
  if (kind == "parse_error.101")
    return fmt::format("{}malformed JSON at {}", before, shown(between(what, "at ", ":")));
  if (kind == "type_error.302")
    return fmt::format("{}a value is of type {}, not {}", before, between(what, "but is ", "\n"),
                       between(what, "must be ", ","));
  if (kind == "type_error.304" || kind == "type_error.305")
    return before + "a value is not an object or a list";
  if (kind == "type_error.316") return before + "a text is not valid UTF-8";
  if (kind == "out_of_range.403")
    return fmt::format("{}'{}' is missing", before, shown(between(what, "key '", "' not found")));
  return before + shown(what);
}

}  // namespace ddp::train
