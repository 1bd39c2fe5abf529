// Helpers for messages: one line, whatever the values in them contain, with suggestions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::train {

/// Control characters, which a terminal would obey, become escapes as in Python: \x1b, or \x9b for
/// U+009B. Line breaks and tabs stay.
std::string without_controls(std::string_view text);

/// The same for these two as well: a line break is written \n.
std::string one_line(std::string_view text);

/// A value as shown in messages: one line, cut after 100 bytes, between characters.
std::string shown(std::string_view value);

/// Values as shown(), separated by commas; of many the first 20.
std::string shown_list(const std::vector<std::string>& values);

/// A whole message, whatever was quoted in it: of one above 4 kB the beginning, which has the
/// place, and the end, which has the fix.
std::string bounded_message(std::string message);

/// 512 bytes, 86 kB, 1.5 MB, 26 GB: powers of 1000, at least two digits.
std::string size_text(double bytes);

/// Damerau-Levenshtein distance (insert, delete, replace, swap neighbours), ASCII case ignored.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The nearest word within max(1, len/3) edits, or "".
std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// "did you mean '--batch_size'?" with the prefix "--"; `otherwise` when no word is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known,
                         const std::string& otherwise, std::string_view prefix = "");

}  // namespace ddp::train
