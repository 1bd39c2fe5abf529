// The run's log: console and main.log in Hydra's form, `[2026-11-20 21:09:40,740][trainer][INFO] -
// text`.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace ddp::train {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Writes whole lines, thread-safe. Does not rotate files and does not filter by logger name.
class Log {
 public:
  /// A rank that is not the main one writes warnings and errors only, to stderr and no file.
  /// `file` may be empty: console only. Throws UserError when the file's folder cannot be created
  /// or written.
  Log(bool main_rank, const std::string& file, LogLevel level = LogLevel::kInfo);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void debug(std::string_view text) { write(LogLevel::kDebug, text); }
  void info(std::string_view text) { write(LogLevel::kInfo, text); }
  void warning(std::string_view text) { write(LogLevel::kWarning, text); }
  void error(std::string_view text) { write(LogLevel::kError, text); }

  /// INFO and DEBUG go to stdout, WARNING and ERROR to stderr; all of it also to the file, in one
  /// write each line.
  void write(LogLevel level, std::string_view text);

 private:
  struct Sink;
  std::unique_ptr<Sink> sink_;
};

}  // namespace ddp::train
