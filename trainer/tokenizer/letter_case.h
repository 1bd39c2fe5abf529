#pragma once

#include <string>

namespace ddp::train {

/// Python's str.capitalize(), by the simple case mappings of Unicode. `text` is UTF-8.
std::string capitalized(const std::string& text);

}  // namespace ddp::train
