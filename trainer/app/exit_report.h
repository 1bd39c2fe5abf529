// Ends the program after an error: one line on stderr, the launcher's error file, an exit code.
#pragma once

#include <string>

namespace ddp::train {

/// Call in a catch block: reports the exception in flight and returns its exit code. Never
/// throws.
int report_current_exception() noexcept;

/// The same inside a process group, without unwinding: destroying the group first would let the
/// peers fail on a closed connection before this process has ended, and the launcher would take one
/// of them for the cause. If several threads call it, the first one reports.
[[noreturn]] void end_with_current_exception() noexcept;

/// Makes exceptions that escape a thread or a destructor end the process in the same way, such as a
/// GPU error first seen by a thread of torch.
void end_with_uncaught_exceptions();

/// The message of the exception in flight, without printing it.
std::string current_exception_text() noexcept;

}  // namespace ddp::train
