#include "trainer/runtime/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "trainer/runtime/error.h"
#include "trainer/runtime/line_writer.h"

namespace ddp::train {
namespace {

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

struct Log::Sinks {
  LogLevel lowest = LogLevel::kInfo;
  int file_fd = -1;
  std::unique_ptr<LineWriter> file;  // null: console only
  std::unique_ptr<LineWriter> console;
};

Log::Log(bool main_rank, const std::string& file, LogLevel level)
    : sinks_(std::make_unique<Sinks>()) {
  sinks_->lowest = main_rank ? level : LogLevel::kWarning;
  const bool has_file = main_rank && !file.empty();
  if (has_file) {
    sinks_->file_fd = open_log(file);
    sinks_->file = std::make_unique<LineWriter>(
        std::vector<LineWriter::Stream>{{sinks_->file_fd, file, /*owned=*/true}});
  }
  sinks_->console = std::make_unique<LineWriter>(
      std::vector<LineWriter::Stream>{{STDOUT_FILENO, "standard output"},
                                      {STDERR_FILENO, "standard error"}},
      has_file ? "the log is " + file : "");
}

Log::~Log() = default;

void Log::write(LogLevel level, std::string_view text) {
  if (level < sinks_->lowest) return;
  const std::string line = log_line(level, text);
  if (sinks_->file) sinks_->file->write(sinks_->file_fd, line);
  sinks_->console->write(level >= LogLevel::kWarning ? STDERR_FILENO : STDOUT_FILENO, line);
}

void Log::flush() {
  flush_file();
  sinks_->console->flush();
}

void Log::flush_file() {
  if (sinks_->file) sinks_->file->flush();
}

}  // namespace ddp::train
