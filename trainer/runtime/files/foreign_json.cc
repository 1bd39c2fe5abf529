#include "trainer/runtime/files/foreign_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

/// Calls `take` with each character outside strings until it returns false. Returns whether it did.
template <typename Take>
bool stops_outside_strings(std::string_view json, const Take& take) {
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (!in_string && !take(c)) return true;
  }
  return false;
}

/// What stands between `before` and the next `after`; "" without both.
std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return "";
  text.remove_prefix(at + before.size());
  return text.substr(0, text.find(after));
}

template <typename Json>
Json parse_bounded(std::string_view text, const std::string& name) {
  constexpr int kDeepest = 17;
  if (nests_too_deeply(text, kDeepest))
    throw UserError(name + ": is nested too deeply for a tokenizer file; is it the right file?");
  try {
    return Json::parse(text);
  } catch (const typename Json::parse_error& error) {
    if (std::string_view(error.what()).find("surrogate") != std::string_view::npos)
      throw UserError(name +
                      ": half a character, an escape such as \\ud83d without its other half, "
                      "ends at byte " +
                      std::to_string(error.byte) + "; remove it");
    throw UserError(name + ": is incomplete or malformed JSON (at byte " +
                    std::to_string(std::min(error.byte, text.size())) + " of " +
                    std::to_string(text.size()) + "); is it truncated?");
  } catch (const typename Json::exception& error) {
    throw UserError(name + ": " + plain_json_error(error.what()));
  }
}

}  // namespace

bool nests_too_deeply(std::string_view json, int deepest) {
  int depth = 0;
  return stops_outside_strings(json, [&](char c) {
    if (c == ']' || c == '}') --depth;
    if (c == '[' || c == '{') ++depth;
    return depth <= deepest;
  });
}

bool has_more_members(std::string_view json, std::size_t most) {
  std::size_t members = 0;
  return stops_outside_strings(json, [&](char c) {
    if (c == ':') ++members;
    return members <= most;
  });
}

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

nlohmann::json parse_bounded_json(std::string_view text, const std::string& name) {
  return parse_bounded<nlohmann::json>(text, name);
}

nlohmann::ordered_json parse_bounded_ordered_json(std::string_view text, const std::string& name) {
  return parse_bounded<nlohmann::ordered_json>(text, name);
}

std::string quoted_part(std::string_view text) { return fmt::format("'{}'", shown(text)); }

}  // namespace ddp::train
