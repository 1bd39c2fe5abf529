// Standard output of a mode.
#pragma once

#include <string>

namespace ddp::train {

/// Writes to stdout and flushes. Throws RunError.
void print(const std::string& text);

}  // namespace ddp::train
