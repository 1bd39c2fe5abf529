// Types that the keys of several sections have.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ddp::train {

/// `auto`, or the user's number; 0 is off.
struct AutoNumber {
  bool automatic = true;
  double value = 0.0;  ///< Only when not automatic.
};

/// names_of(E): the names of an enumeration's values, in their order, then aliases:
/// "fp16=float16".
using Names = std::vector<std::string_view>;

/// Returns the name of such an enumeration's value.
template <typename Enum>
std::string_view name_of(Enum value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}

}  // namespace ddp::train
