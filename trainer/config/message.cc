#include "trainer/config/message.h"

#include <fmt/format.h>

namespace ddp::train {

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string shown(std::string_view value) {
  constexpr std::size_t kLongest = 100;
  if (value.size() <= kLongest) return one_line(value);
  return one_line(value.substr(0, kLongest)) + "...";
}

}  // namespace ddp::train
