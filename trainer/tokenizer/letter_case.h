#pragma once

#include <cstdint>
#include <string>

namespace ddp::train {

/// Python's str.capitalize(), by the simple case mappings of Unicode. `text` is UTF-8.
std::string capitalized(const std::string& text);

/// Python's str.upper() and str.lower(), letters that become several included.
std::string in_case(const std::string& text, bool upper);

/// Python's str.isprintable() of one code point.
bool is_printable(uint32_t point);

}  // namespace ddp::train
