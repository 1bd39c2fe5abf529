// Small string utilities.
#pragma once

#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace ddp::launch {

/// Strips surrounding whitespace, as Python does when parsing numbers and lists.
std::string trimmed(const std::string& text);
/// Returns nullopt unless the whole text is a number that fits.
template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}
inline std::optional<int> whole_number(std::string_view text) { return number_in<int>(text); }
/// Splits into lines without their ends, empty ones included; they refer to `text`.
std::vector<std::string_view> lines_of(std::string_view text);
/// ASCII letters in lower case.
std::string lowercase(std::string text);
/// "a,b" as {"a", "b"}; an empty text as {""}.
std::vector<std::string> split_list(const std::string& text, char separator);
/// "rank 3", "ranks 0, 2": the first eight of `numbers`, of which there is at least one.
std::string numbered(const char* noun, const std::vector<int>& numbers);
/// "1 process", "2 processes".
std::string plural(long long count, const char* noun, const char* ending = "s");
/// Drops all items but the last `most`.
template <typename Item>
void keep_last(std::vector<Item>& items, std::size_t most) {
  if (items.size() > most)
    items.erase(items.begin(), items.end() - static_cast<std::ptrdiff_t>(most));
}
/// The end of foreign text for a terminal: its last lines that are not empty, cut after 300 bytes.
std::vector<std::string> last_lines(const std::string& text, std::size_t most);
/// A line for the user, which may quote a whole argument: beyond 3000 bytes without its middle.
std::string without_middle(std::string_view line);
/// "2.5 s".
std::string seconds_text(std::chrono::milliseconds time);
/// Makes foreign text safe for a terminal: replaces each control character (C0, DEL and C1) and
/// each byte that is not UTF-8 with `?`.
std::string printable(std::string_view text);

}  // namespace ddp::launch
