#include "trainer/tokenizer/letter_case.h"

#include <utf8proc.h>

namespace ddp::train {

std::string capitalized(const std::string& text) {
  std::string result;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  utf8proc_ssize_t left = std::ssize(text);
  while (left > 0) {
    utf8proc_int32_t point = 0;
    const utf8proc_ssize_t read = utf8proc_iterate(bytes, left, &point);
    if (read <= 0) return text;  // the file was checked: it does not happen
    utf8proc_uint8_t encoded[4];
    const auto size = utf8proc_encode_char(
        result.empty() ? utf8proc_totitle(point) : utf8proc_tolower(point), encoded);
    result.append(reinterpret_cast<const char*>(encoded), static_cast<std::size_t>(size));
    bytes += read;
    left -= read;
  }
  return result;
}

}  // namespace ddp::train
