// ddp-run's own messages: whole lines on stderr, one write each, with a prefix that sets them apart
// from the workers' output.
#pragma once

#include <string_view>

namespace ddp::launch {

/// Writes all bytes, despite signals and short writes. Returns 0 or an errno.
int write_fully(int fd, std::string_view text);
/// "ddp-run: <text>\n" on stderr, without_middle().
void say(std::string_view text);
/// "error: <text>\n" on stderr, likewise.
void say_error(std::string_view text);

}  // namespace ddp::launch
