// "did you mean ...": the nearest of a list of known words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::train {

/// Damerau-Levenshtein distance (insert, delete, replace, swap neighbours), ASCII case ignored.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The nearest word within max(1, len/3) edits, or "".
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace ddp::train
