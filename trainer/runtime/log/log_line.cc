#include "trainer/runtime/log/log_line.h"

#include <fmt/format.h>
#include <sys/time.h>

#include <ctime>

namespace ddp::train {
namespace {

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
  }
  return "";
}

/// "2026-11-20 21:09:40,740", local time.
std::string time_stamp() {
  timeval now{};
  gettimeofday(&now, nullptr);
  std::tm local{};
  localtime_r(&now.tv_sec, &local);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02},{:03}", local.tm_year + 1900,
                     local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                     now.tv_usec / 1000);
}

}  // namespace

std::string log_line(LogLevel level, std::string_view text) {
  return fmt::format("[{}][trainer][{}] - {}\n", time_stamp(), level_name(level), text);
}

}  // namespace ddp::train
