// Errors that end a run with one line and no stack trace; any other exception is a bug.
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>

namespace ddp::train {

/// A usage or configuration error that the user can fix. The message is one line: what is wrong,
/// where (file:line:column, option or key), why, and the fix. Ends the program with exit code 2.
class UserError : public std::runtime_error {
 public:
  /// Control characters become escapes, as one_line() writes them.
  explicit UserError(const std::string& message);
};

/// The system refused access to `path`, for the reason `error` (an errno): its existence and
/// content are unknown. Must not be treated as a missing or damaged file.
class UnreadableError : public UserError {
 public:
  UnreadableError(const std::string& path, int error)
      : UserError(path + ": cannot be read: " + std::strerror(error) + "; nothing was changed") {}
};

/// Returns the same error under the user's name: replaces `key` at the start of the message by
/// `name`.
UserError named_as(const UserError& error, const std::string& key, const std::string& name);

/// The run itself failed (a peer died, a snapshot could not be written, ...). Ends the program with
/// exit code 1.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The run failed, and would fail again from its current state. Ends the program with exit code 76,
/// after which ddp-run does not restart the group.
class FinalError : public RunError {
 public:
  using RunError::RunError;
};

/// A file could not be written because the disk, the quota or the shared memory is full.
class NoSpaceError : public RunError {
 public:
  using RunError::RunError;
};

}  // namespace ddp::train
