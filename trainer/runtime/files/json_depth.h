// One bound on the nesting of foreign JSON: much of the code that handles it is recursive.
#pragma once

#include <string_view>

namespace ddp::train {

inline constexpr int kDeepestJson = 100;

/// True if brackets outside strings nest deeper than kDeepestJson. The text need not be JSON.
bool nests_too_deeply(std::string_view json);

}  // namespace ddp::train
