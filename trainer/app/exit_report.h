// How an error ends the program: one line on stderr, the launcher's error file, an exit code.
#pragma once

#include <string>

namespace ddp::train {

/// Call in a catch block: reports the exception in flight and returns the exit code that it asks
/// for. Never throws.
int report_current_exception() noexcept;

/// The same inside a process group, without unwinding: destroying the group first would let the
/// peers fail on a closed connection before this process has ended, and the launcher would take one
/// of them for the cause.
[[noreturn]] void end_with_current_exception() noexcept;

/// The message of the exception in flight, without printing it.
std::string current_exception_text() noexcept;

}  // namespace ddp::train
