// The run's log: console and main.log.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trainer/runtime/log/log_line.h"

namespace ddp::train {

/// The output on standard output.
enum class Console {
  kPlain,  ///< Every line.
  kLive,   ///< A terminal: one line that is redrawn in place of those of single steps.
  kQuiet,  ///< Nothing: only warnings and errors, on standard error.
};

/// Writes whole lines, thread-safe, and never blocks on console or disk (see LineWriter). Neither
/// rotates files nor filters by logger name.
class Log {
 public:
  /// Other ranks than the main one write only warnings and errors, to stderr and no file. `file`
  /// may be empty: console only. Throws UserError if the file's folder cannot be created or
  /// written.
  Log(bool main_rank, const std::string& file, LogLevel level = LogLevel::kInfo,
      Console console = Console::kPlain);
  /// As flush().
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void debug(std::string_view text) { write(LogLevel::kDebug, text); }
  void info(std::string_view text) { write(LogLevel::kInfo, text); }
  void warning(std::string_view text) { write(LogLevel::kWarning, text); }
  void error(std::string_view text) { write(LogLevel::kError, text); }

  /// INFO and DEBUG go to stdout, WARNING and ERROR to stderr; all of it also to the file.
  void write(LogLevel level, std::string_view text);

  /// INFO about a run's setup: if there is a live line, cut to the terminal's width and without a
  /// time; the file has all of it.
  void setup(std::string_view text);
  /// INFO about a single step: for the file alone if a live line shows it.
  void step(std::string_view text);
  bool has_live_line() const;
  /// Sets the text of the live line. Lines go above it; flush() removes it.
  void set_live_line(std::string text);
  /// Columns of the live line's terminal; 80 if unknown.
  static int live_line_width();

  /// Call before the process exits without destructors: waits until everything is written, but only
  /// a few seconds for a stalled console or disk.
  void flush();
  /// The same for the file alone.
  void flush_file();

 private:
  struct Sinks;
  std::unique_ptr<Sinks> sinks_;
};

}  // namespace ddp::train
