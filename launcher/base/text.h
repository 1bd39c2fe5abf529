// Small string utilities.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

/// Strips surrounding whitespace, as Python does when parsing numbers and lists.
std::string trimmed(const std::string& text);
/// Returns nullopt unless the text is an integer that fits in an int.
std::optional<int> whole_number(std::string_view text);
/// Splits into lines without their ends, empty ones included; they refer to `text`.
std::vector<std::string_view> lines_of(std::string_view text);
/// Drops all items but the last `most`.
template <typename Item>
void keep_last(std::vector<Item>& items, std::size_t most) {
  if (items.size() > most)
    items.erase(items.begin(), items.end() - static_cast<std::ptrdiff_t>(most));
}
/// "2.5 s".
std::string seconds_text(std::chrono::milliseconds time);
/// Makes foreign text safe for a terminal: replaces each control character (C0, DEL and C1) and
/// each byte that is not UTF-8 with `?`.
std::string printable(std::string_view text);

}  // namespace ddp::launch
