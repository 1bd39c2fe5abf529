// Types that the keys of several sections have.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ddp::train {

/// `auto`, or a number of the user's; 0 is off.
struct AutoNumber {
  bool automatic = true;
  double value = 0.0;  ///< Only when not automatic.
};

/// names_of(E): what the values of an enumeration are called, in their order, then other names for
/// them: "fp16=float16".
using Names = std::vector<std::string_view>;

/// What a value of such an enumeration is called.
template <typename Enum>
std::string_view name_of(Enum value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}

}  // namespace ddp::train
