// A worker's error file, whose disk may not answer.
#pragma once

#include <atomic>
#include <climits>
#include <memory>
#include <string>

#include "launcher/base/system/regular_file.h"

namespace ddp::launch {

/// The file of one worker. Copies share what read() has read, in whichever thread.
struct ErrorFile {
  static constexpr long long kNever = LLONG_MAX;

  ErrorFile() = default;
  ErrorFile(std::string where) : path(std::move(where)) {}  // NOLINT: not to be read in advance
  ErrorFile(const char* where) : path(where) {}             // NOLINT

  /// Returns the same file, which text() and written() do not touch before read() has returned.
  static ErrorFile to_be_read(std::string path);
  /// Reads the file once. May wait for its disk.
  void read() const;
  bool is_read() const { return !contents || contents->read; }

  /// FileProblem::kUnanswered while it is to be read.
  FileText text() const;
  /// When it was written, in nanoseconds since 1970; kNever: there is none, or not known yet.
  long long written() const;

  std::string path{};  // empty: none

 private:
  struct Contents {
    std::atomic<bool> read = false;
    FileText file{};
    long long written = kNever;
  };
  bool was_found() const { return contents && contents->written != kNever; }

  std::shared_ptr<Contents> contents{};  // nullptr: is read when it is needed
};

}  // namespace ddp::launch
