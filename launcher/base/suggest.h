// "did you mean ...?": the closest of a list of names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

/// The candidate closest to `word`; empty if none is close.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace ddp::launch
