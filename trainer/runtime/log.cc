#include "trainer/runtime/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>

#include "trainer/runtime/error.h"

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

/// A console that went away must not end the training: errors are dropped.
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

int open_log(const std::string& file) {
  const auto folder = std::filesystem::path(file).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error)
    throw UserError(fmt::format("hydra.run.dir: cannot create {}: {}; choose another folder",
                                folder.string(), error.message()));
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) {
    throw UserError(fmt::format("hydra.run.dir: cannot write {}: {}; choose another folder", file,
                                std::strerror(errno)));
  }
  return fd;
}

}  // namespace

struct Log::Sink {
  LogLevel lowest = LogLevel::kInfo;
  bool main_rank = true;
  int file = -1;
  std::mutex mutex;

  ~Sink() {
    if (file >= 0) ::close(file);
  }
};

Log::Log(bool main_rank, const std::string& file, LogLevel level)
    : sink_(std::make_unique<Sink>()) {
  sink_->main_rank = main_rank;
  sink_->lowest = main_rank ? level : LogLevel::kWarning;
  if (main_rank && !file.empty()) sink_->file = open_log(file);
}

Log::~Log() = default;

void Log::write(LogLevel level, std::string_view text) {
  if (level < sink_->lowest) return;
  const std::string line =
      fmt::format("[{}][trainer][{}] - {}\n", time_stamp(), level_name(level), text);
  const int console = level >= LogLevel::kWarning ? STDERR_FILENO : STDOUT_FILENO;
  const std::scoped_lock lock(sink_->mutex);
  write_all(console, line);
  if (sink_->file >= 0) write_all(sink_->file, line);
}

}  // namespace ddp::train
