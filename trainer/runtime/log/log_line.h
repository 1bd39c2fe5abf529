// One line of the log, in Hydra's form: `[2026-11-20 21:09:40,740][trainer][INFO] - text`.
#pragma once

#include <string>
#include <string_view>

namespace ddp::train {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// With the local time of the call and a newline.
std::string log_line(LogLevel level, std::string_view text);

}  // namespace ddp::train
