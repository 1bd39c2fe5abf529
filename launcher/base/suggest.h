// "did you mean ...": the nearest of a list of names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

/// The candidate that `word` was probably meant to be; empty when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace ddp::launch
