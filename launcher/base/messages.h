// What ddp-run itself says: whole lines on stderr, one write each, prefixed so that they stand out
// from the workers'.
#pragma once

#include <string_view>

namespace ddp::launch {

/// Writes all bytes, whatever the signals and the size; 0, or the errno at which it gave up.
int write_fully(int fd, std::string_view text);
/// "ddp-run: <text>\n" on stderr.
void say(std::string_view text);
/// "error: <text>\n" on stderr.
void say_error(std::string_view text);

}  // namespace ddp::launch
