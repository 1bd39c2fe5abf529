// One bound on the nesting of JSON that somebody else wrote: much of what handles it is recursive.
#pragma once

#include <string_view>

namespace ddp::train {

inline constexpr int kDeepestJson = 100;

/// True when brackets outside strings nest deeper than kDeepestJson. The text need not be JSON.
bool nests_too_deeply(std::string_view json);

}  // namespace ddp::train
