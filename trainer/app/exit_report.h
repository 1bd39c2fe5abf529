// How an error ends the program: one line on stderr, the launcher's error file, an exit code.
#pragma once

#include <string>

namespace ddp::train {

/// Call in a catch block: reports the exception in flight and returns the exit code that it asks
/// for. Never throws.
int report_current_exception() noexcept;

/// The same inside a process group, without unwinding: destroying the group first would let the
/// peers fail on a closed connection before this process has ended, and the launcher would take one
/// of them for the cause. If several threads call it, the first one reports.
[[noreturn]] void end_with_current_exception() noexcept;

/// Lets an exception that leaves a thread or a destructor end the process in the same way, as an
/// error of a GPU does that a thread of torch meets first.
void end_with_uncaught_exceptions();

/// The message of the exception in flight, without printing it.
std::string current_exception_text() noexcept;

}  // namespace ddp::train
