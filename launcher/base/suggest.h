// Suggestions for mistyped words ("did you mean ...?").
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

/// Returns the candidate closest to `word`, or "" if none is close.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace ddp::launch
