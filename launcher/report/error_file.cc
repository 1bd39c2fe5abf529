#include "launcher/report/error_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace ddp::launch {
namespace {

using nlohmann::json;

constexpr off_t kLargest = 4 << 20;  // bytes

std::string contents(int fd, off_t size) {
  std::string text(static_cast<std::size_t>(size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(fd, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

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

ErrorMessage parse(const std::string& text) {
  const json root = parse_foreign(text);
  if (root.is_discarded()) return {"(its error file is not valid JSON)", ""};
  if (!root.is_object() || !root.contains("message"))
    return {"(its error file has no \"message\")", ""};
  const json& message = root["message"];
  if (!message.is_object()) return {text_of(message), ""};
  ErrorMessage result;
  if (message.contains("message")) result.text = text_of(message["message"]);
  if (message.contains("extraInfo") && message["extraInfo"].is_object() &&
      message["extraInfo"].contains("py_callstack")) {
    result.callstack = text_of(message["extraInfo"]["py_callstack"]);
  }
  return result;
}

int open_for_reading(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

ErrorMessage read_open_file(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
    return {"(its error file is not a regular file)", ""};
  if (status.st_size > kLargest) return {"(its error file is too large)", ""};
  if (status.st_size == 0) return {"(its error file is empty)", ""};
  return parse(contents(fd, status.st_size));
}

}  // namespace

std::optional<ErrorMessage> read_error_file(const std::string& path) noexcept {
  if (path.empty()) return std::nullopt;
  const int fd = open_for_reading(path);
  if (fd < 0) {
    if (errno == ENOENT) return std::nullopt;
    return ErrorMessage{"(its error file cannot be read)", ""};
  }
  ErrorMessage message;
  try {
    message = read_open_file(fd);
  } catch (const std::exception&) {
    message.text = "(its error file is malformed)";
  }
  ::close(fd);
  return message;
}

std::string error_file_to_pass_on(const std::string& path, int exit_code) noexcept {
  const int fd = path.empty() ? -1 : open_for_reading(path);
  if (fd < 0) return "";
  std::string text;
  try {
    struct stat status {};
    const bool readable =
        ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= kLargest;
    json root = parse_foreign(readable ? contents(fd, status.st_size) : "");
    if (root.is_object() && root.contains("message")) {
      if (root["message"].is_object()) root["message"]["errorCode"] = exit_code;
      text = root.dump(-1, ' ', false, json::error_handler_t::replace);
    }
  } catch (const std::exception&) {
    text.clear();
  }
  ::close(fd);
  return text;
}

}  // namespace ddp::launch
