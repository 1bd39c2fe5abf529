#include "trainer/runtime/log/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "trainer/runtime/error.h"
#include "trainer/runtime/log/line_writer.h"

namespace ddp::train {
namespace {

int open_log(const std::string& file) {
  const auto folder = std::filesystem::path(file).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error)
    throw UserError(fmt::format("hydra.run.dir: cannot create {}: {}; choose another folder",
                                folder.string(), error.message()));
  // Without O_NONBLOCK this would wait until a FIFO has a reader.
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (fd < 0) {
    throw UserError(fmt::format("hydra.run.dir: cannot write {}: {}; choose another folder", file,
                                std::strerror(errno)));
  }
  return fd;
}

/// Cuts UTF-8 without splitting a character; each counts as one column.
std::string cut(std::string_view text, int columns) {
  constexpr std::string_view kMore = "...";
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  if (std::count_if(text.begin(), text.end(), begins) <= columns) return std::string(text);
  std::size_t end = 0;
  for (int left = columns - static_cast<int>(kMore.size()); end < text.size(); ++end) {
    if (begins(text[end]) && --left < 0) break;
  }
  return std::string(text.substr(0, end)).append(kMore);
}

}  // namespace

struct Log::Sinks {
  LogLevel lowest = LogLevel::kInfo;
  Console style = Console::kPlain;
  int file_fd = -1;
  std::unique_ptr<LineWriter> file;  // null: console only
  std::unique_ptr<LineWriter> console;
};

Log::Log(bool main_rank, const std::string& file, LogLevel level, Console console)
    : sinks_(std::make_unique<Sinks>()) {
  sinks_->lowest = main_rank ? level : LogLevel::kWarning;
  sinks_->style = main_rank ? console : Console::kPlain;
  const bool has_file = main_rank && !file.empty();
  if (has_file) {
    sinks_->file_fd = open_log(file);
    sinks_->file = std::make_unique<LineWriter>(
        std::vector<LineWriter::Stream>{{sinks_->file_fd, file, /*owned=*/true}});
  }
  sinks_->console = std::make_unique<LineWriter>(
      std::vector<LineWriter::Stream>{{STDOUT_FILENO, "standard output", false, has_live_line()},
                                      {STDERR_FILENO, "standard error", false,
                                       has_live_line() && ::isatty(STDERR_FILENO) == 1}},
      has_file ? "the log is " + file : "");
}

Log::~Log() { set_live_line(""); }

void Log::write(LogLevel level, std::string_view text) {
  if (level < sinks_->lowest) return;
  const std::string line = log_line(level, text);
  if (sinks_->file) sinks_->file->write(sinks_->file_fd, line);
  const bool trouble = level >= LogLevel::kWarning;
  if (!trouble && sinks_->style == Console::kQuiet) return;
  sinks_->console->write(trouble ? STDERR_FILENO : STDOUT_FILENO, line);
}

void Log::setup(std::string_view text) {
  step(text);
  if (has_live_line() && LogLevel::kInfo >= sinks_->lowest)
    sinks_->console->write(STDOUT_FILENO, cut(text, live_line_width() - 1) + "\n");
}

void Log::step(std::string_view text) {
  if (!has_live_line()) return info(text);
  if (sinks_->file && LogLevel::kInfo >= sinks_->lowest)
    sinks_->file->write(sinks_->file_fd, log_line(LogLevel::kInfo, text));
}

bool Log::has_live_line() const { return sinks_->style == Console::kLive; }

void Log::set_live_line(std::string text) { sinks_->console->set_live_line(std::move(text)); }

int Log::live_line_width() {
  constexpr int kUsual = 80;
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

void Log::flush() {
  flush_file();
  set_live_line("");
  sinks_->console->flush();
}

void Log::flush_file() {
  if (sinks_->file) sinks_->file->flush();
}

}  // namespace ddp::train
