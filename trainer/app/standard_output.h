// Standard output of a mode.
#pragma once

#include <string>

namespace ddp::train {

/// Writes to stdout and flushes. Throws RunError.
void print(const std::string& text);

/// Flushes stdout at the end of a mode: a full disk must not look like success. Throws RunError if
/// output was lost.
void finish_stdout();

}  // namespace ddp::train
