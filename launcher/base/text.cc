#include "launcher/base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace ddp::launch {

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

std::string plural(long long count, const char* noun, const char* ending) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : ending);
}

std::string numbered(const char* noun, const std::vector<int>& numbers) {
  constexpr std::size_t kMost = 8;
  const auto end = numbers.begin() + static_cast<std::ptrdiff_t>(std::min(numbers.size(), kMost));
  return fmt::format("{}{} {}{}", noun, numbers.size() == 1 ? "" : "s",
                     fmt::join(numbers.begin(), end, ", "), numbers.size() > kMost ? ", ..." : "");
}

namespace {

// Bytes of the character that the text begins with; 0: no UTF-8. Overlong forms are none, since a
// lax terminal may decode a control character from them.
std::size_t utf8_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xc2 && first < 0xe0 ? 2
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xf0 && first < 0xf5 ? 4
                                                             : 0;
  const auto rest = text.substr(1, length == 0 ? 0 : length - 1);
  const bool whole = rest.size() + 1 == length && std::all_of(rest.begin(), rest.end(), [](char c) {
                       return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
                     });
  if (!whole) return 0;
  const bool overlong = (first == 0xe0 && static_cast<unsigned char>(rest[0]) < 0xa0) ||
                        (first == 0xf0 && static_cast<unsigned char>(rest[0]) < 0x90);
  return overlong ? 0 : length;
}

// U+0000 to U+001F, U+007F to U+009F: a terminal may take U+009B, for one, as ESC [.
bool is_control(std::string_view character) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return at(0) < 0x20 || at(0) == 0x7f;
  return at(0) == 0xc2 && at(1) < 0xa0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto character = text.substr(0, std::max<std::size_t>(length, 1));
    if (length == 0 || is_control(character)) {
      shown += '?';
    } else {
      shown += character;
    }
    text.remove_prefix(character.size());
  }
  return shown;
}

std::vector<std::string> split_list(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(separator, begin)) != std::string::npos; begin = end + 1) {
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::string lowercase(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string> last_lines(const std::string& text, std::size_t most) {
  constexpr std::size_t kLongestLine = 300;
  std::vector<std::string> lines;
  for (const std::string_view whole : lines_of(text)) {
    std::size_t size = std::min(whole.size(), kLongestLine);
    // Not within a character of UTF-8.
    while (size > 0 && size < whole.size() && (whole[size] & 0xC0) == 0x80) --size;
    std::string line(whole.substr(0, size));
    std::replace(line.begin(), line.end(), '\t', ' ');
    if (!line.empty()) lines.push_back(printable(line) + (whole.size() > line.size() ? "..." : ""));
  }
  keep_last(lines, most);
  return lines;
}

std::string without_middle(std::string_view line) {
  constexpr std::size_t kLongest = 3000;
  constexpr std::size_t kHead = 500;
  constexpr std::size_t kTail = 1000;
  if (line.size() <= kLongest) return std::string(line);
  // Not within a character of UTF-8.
  const auto boundary = [line](std::size_t at) {
    while (at < line.size() && (line[at] & 0xC0) == 0x80) ++at;
    return at;
  };
  const std::size_t head = boundary(kHead);
  const std::size_t tail = boundary(line.size() - kTail);
  return fmt::format("{} ... [{} bytes] ... {}", line.substr(0, head), tail - head,
                     line.substr(tail));
}

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000);
}

}  // namespace ddp::launch
