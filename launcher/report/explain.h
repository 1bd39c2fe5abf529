// --explain: reports why a past run failed, and the fix.
#pragma once

#include <string>

namespace ddp::launch {

/// Returns the whole text. `path` is as for read_past_run(), which throws LaunchError (2).
std::string explain_run(const std::string& path);

}  // namespace ddp::launch
