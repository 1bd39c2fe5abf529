// One bound on the nesting of foreign JSON: much of the code that handles it is recursive.
#pragma once

#include <cstddef>
#include <string_view>

namespace ddp::train {

inline constexpr int kDeepestJson = 100;

/// True if brackets outside strings nest deeper than `deepest`. The text need not be JSON.
bool nests_too_deeply(std::string_view json, int deepest = kDeepestJson);

/// True if objects have more than `most` members in all: ordered ones compare each with all before.
bool has_more_members(std::string_view json, std::size_t most);

}  // namespace ddp::train
