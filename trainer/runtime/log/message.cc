#include "trainer/runtime/log/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

/// Where the character that the byte at `at` belongs to begins, in UTF-8.
std::size_t start_of_character(std::string_view text, std::size_t at) {
  const auto continues = [&] { return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; };
  const std::size_t given = at;
  while (at > 0 && given - at < 3 && continues()) --at;
  return at;
}

/// `kept`: the control characters that stay.
std::string escaped(std::string_view text, std::string_view kept) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const std::string_view next = text.substr(at + 1, 1);
    const bool is_c1 = c == '\xc2' && next >= "\x80" && next <= "\x9f";
    const auto code = static_cast<unsigned char>(is_c1 ? next[0] : c);
    at += is_c1 ? 1 : 0;
    const bool control = is_c1 || code < 0x20 || code == 0x7f;
    if (!control || kept.find(c) != std::string_view::npos)
      out += c;
    else
      out += c == '\n' ? "\\n" : fmt::format("\\x{:02x}", code);
  }
  return out;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = d[i - 1][j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replace});
      const bool swapped =
          i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]);
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kLongest = 200;  // the table is quadratic; no key is that long
  if (word.size() > kLongest) return "";
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known,
                         const std::string& otherwise, std::string_view prefix) {
  const std::string near = nearest(word, known);
  return near.empty() ? otherwise : fmt::format("did you mean '{}{}'?", prefix, near);
}

UserError::UserError(const std::string& message)
    : std::runtime_error(bounded_message(one_line(message))) {}

UserError named_as(const UserError& error, const std::string& key, const std::string& name) {
  const std::string text = error.what();
  return UserError(text.starts_with(key) ? name + text.substr(key.size()) : text);
}

std::string without_controls(std::string_view text) { return escaped(text, "\n\t"); }

std::string one_line(std::string_view text) { return escaped(text, ""); }

std::string size_text(double bytes) {
  constexpr std::array<const char*, 4> kUnits = {"kB", "MB", "GB", "TB"};
  if (bytes < 999.5) return fmt::format("{:.0f} bytes", bytes);
  std::size_t unit = 0;
  bytes /= 1000;
  while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, bytes < 9.95 ? 1 : 0, kUnits.at(unit));
}

std::string shown(std::string_view value) {
  constexpr std::size_t kLongest = 100;
  if (value.size() <= kLongest) return one_line(value);
  return one_line(value.substr(0, start_of_character(value, kLongest))) + "...";
}

std::string shown_list(const std::vector<std::string>& values) {
  constexpr std::size_t kMost = 20;
  std::string list;
  for (std::size_t i = 0; i < std::min(values.size(), kMost); ++i)
    list += fmt::format("{}{}", i == 0 ? "" : ", ", shown(values[i]));
  return values.size() > kMost ? fmt::format("{}, ... ({} in all)", list, values.size()) : list;
}

std::string bounded_message(std::string message) {
  constexpr std::size_t kLongest = 4096, kBeginning = 3000, kEnd = 1000;
  if (message.size() <= kLongest) return message;
  const std::size_t from = start_of_character(message, kBeginning);
  const std::size_t to = start_of_character(message, message.size() - kEnd);
  return message.replace(from, to - from, " ... ");
}

}  // namespace ddp::train
