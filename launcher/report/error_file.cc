#include "launcher/report/error_file.h"

#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

namespace ddp::launch {
namespace {

using nlohmann::json;

std::string words_of(const json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

constexpr std::size_t kEscapeSize = 6;  // of \uD83D

bool is_escape(std::string_view text, char first, char last) {
  return text.size() >= kEscapeSize && text.starts_with("\\u") && (text[2] | 0x20) == 'd' &&
         (text[3] | 0x20) >= first && (text[3] | 0x20) <= last;
}

// Python writes a byte of a name that is not UTF-8 as half of a surrogate pair, \udce9, which json
// refuses: it becomes U+FFFD.
std::string without_lone_surrogates(std::string text) {
  for (auto at = text.find('\\'); at < text.size(); at = text.find('\\', at)) {
    const std::string_view rest = std::string_view(text).substr(at);
    const bool high = is_escape(rest, '8', 'b');
    if (high && is_escape(rest.substr(kEscapeSize), 'c', 'f')) {
      at += 2 * kEscapeSize;
    } else if (high || is_escape(rest, 'c', 'f')) {
      text.replace(at + 2, 4, "fffd");
      at += kEscapeSize;
    } else {
      at += 2;  // of an escaped backslash, both
    }
  }
  return text;
}

// json writes and copies values recursively: unbounded nesting would overflow the stack. Throws on
// that; discards invalid JSON.
json parse_foreign(const std::string& text) {
  constexpr int kDeepest = 100;
  bool too_deep = false;
  const auto bound = [&](int depth, json::parse_event_t, const json&) {
    too_deep = too_deep || depth > kDeepest;
    return depth <= kDeepest;
  };
  json root = json::parse(without_lone_surrogates(text), bound, /*allow_exceptions=*/false);
  if (too_deep && !root.is_discarded()) throw std::length_error("nested too deeply");
  return root;
}

// torch writes it as a string.
double time_of(const json& object) {
  if (!object.contains("timestamp")) return 0;
  const json& time = object["timestamp"];
  return time.is_number()
             ? time.get<double>()
             : std::strtod(time.is_string() ? time.get_ref<const std::string&>().c_str() : "",
                           nullptr);
}

ErrorMessage parse(const std::string& text) {
  const json root = parse_foreign(text);
  if (root.is_discarded()) return {"(its error file is not valid JSON)", "", 0};
  if (!root.is_object() || !root.contains("message"))
    return {"(its error file has no \"message\")", "", 0};
  const json& message = root["message"];
  if (!message.is_object()) return {words_of(message), "", time_of(root)};
  ErrorMessage result;
  result.time = time_of(message);
  if (message.contains("errorCode") && message["errorCode"].is_number_integer())
    result.code = message["errorCode"].get<int>();
  if (message.contains("message")) result.text = words_of(message["message"]);
  if (message.contains("extraInfo") && message["extraInfo"].is_object() &&
      message["extraInfo"].contains("py_callstack")) {
    result.callstack = words_of(message["extraInfo"]["py_callstack"]);
    if (result.time == 0) result.time = time_of(message["extraInfo"]);
  }
  return result;
}

ErrorMessage message_of(const FileText& file) {
  switch (file.problem) {
    case FileProblem::kAbsent:
    case FileProblem::kUnreadable:
      return {"(its error file cannot be read)", "", 0};
    case FileProblem::kNotRegular:
      return {"(its error file is not a regular file)", "", 0};
    case FileProblem::kTooLarge:
      return {"(its error file is too large)", "", 0};
    case FileProblem::kUnanswered:
      return {"(its error file cannot be read: its disk does not answer)", "", 0};
    case FileProblem::kNone:
      break;
  }
  return file.text.empty() ? ErrorMessage{"(its error file is empty)", "", 0} : parse(file.text);
}

}  // namespace

std::optional<ErrorMessage> read_error_file(const ErrorFile& error_file) noexcept {
  try {
    const FileText file = error_file.text();
    if (file.problem == FileProblem::kAbsent) return std::nullopt;
    return message_of(file);
  } catch (const std::exception&) {
    return ErrorMessage{"(its error file is malformed)", "", 0};
  }
}

double error_file_time(const ErrorFile& error_file) {
  const long long written = error_file.written();
  return written == ErrorFile::kNever ? std::numeric_limits<double>::infinity()
                                      : static_cast<double>(written) / 1e9;
}

std::string error_file_to_pass_on(const ErrorFile& error_file, int exit_code) noexcept {
  try {
    json root = parse_foreign(error_file.text().text);
    if (!root.is_object() || !root.contains("message")) return "";
    if (root["message"].is_object()) root["message"]["errorCode"] = exit_code;
    return root.dump(-1, ' ', false, json::error_handler_t::replace);
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace ddp::launch
