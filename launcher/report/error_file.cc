#include "launcher/report/error_file.h"

#include <sys/stat.h>

#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "launcher/base/system/regular_file.h"

namespace ddp::launch {
namespace {

using nlohmann::json;

constexpr std::size_t kLargest = 4 << 20;  // bytes

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, json::error_handler_t::replace);
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
  json root = json::parse(text, bound, /*allow_exceptions=*/false);
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
  if (!message.is_object()) return {text_of(message), "", time_of(root)};
  ErrorMessage result;
  result.time = time_of(message);
  if (message.contains("errorCode") && message["errorCode"].is_number_integer())
    result.code = message["errorCode"].get<int>();
  if (message.contains("message")) result.text = text_of(message["message"]);
  if (message.contains("extraInfo") && message["extraInfo"].is_object() &&
      message["extraInfo"].contains("py_callstack")) {
    result.callstack = text_of(message["extraInfo"]["py_callstack"]);
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
    case FileProblem::kNone:
      break;
  }
  return file.text.empty() ? ErrorMessage{"(its error file is empty)", "", 0} : parse(file.text);
}

}  // namespace

std::optional<ErrorMessage> read_error_file(const std::string& path) noexcept {
  if (path.empty()) return std::nullopt;
  try {
    const FileText file = read_regular_file(path, kLargest, Links::kFollow);
    if (file.problem == FileProblem::kAbsent) return std::nullopt;
    return message_of(file);
  } catch (const std::exception&) {
    return ErrorMessage{"(its error file is malformed)", "", 0};
  }
}

double error_file_time(const std::string& path) {
  struct stat status {};
  if (path.empty() || ::stat(path.c_str(), &status) != 0)
    return std::numeric_limits<double>::infinity();
  return static_cast<double>(status.st_mtim.tv_sec) +
         static_cast<double>(status.st_mtim.tv_nsec) / 1e9;
}

std::string error_file_to_pass_on(const std::string& path, int exit_code) noexcept {
  if (path.empty()) return "";
  try {
    json root = parse_foreign(read_regular_file(path, kLargest, Links::kFollow).text);
    if (!root.is_object() || !root.contains("message")) return "";
    if (root["message"].is_object()) root["message"]["errorCode"] = exit_code;
    return root.dump(-1, ' ', false, json::error_handler_t::replace);
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace ddp::launch
