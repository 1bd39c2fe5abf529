// Text in an unnamed file in memory, for another process to write or to read.
#pragma once

#include <string>
#include <string_view>

namespace ddp::launch {

/// Returns a descriptor of a new one (close-on-exec) that holds `text`, after which others write;
/// -1 with errno.
int memory_file(std::string_view text);
/// Returns its text so far.
std::string text_of(int memory_file);

}  // namespace ddp::launch
