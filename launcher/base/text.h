// Small things done to texts.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddp::launch {

/// Without blanks around it, as Python reads numbers and lists.
std::string trimmed(const std::string& text);
/// nullopt when the text is anything but a whole number that an int holds.
std::optional<int> whole_number(std::string_view text);
/// Foreign text as a terminal may get it: `?` for each control character.
std::string printable(std::string_view text);

}  // namespace ddp::launch
