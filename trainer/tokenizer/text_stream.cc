#include "trainer/tokenizer/text_stream.h"

#include <algorithm>

namespace ddp::train {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

struct ByteRange {
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  bool holds(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= low && byte <= high;
  }
};

// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
std::size_t character_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

ByteRange second_byte(unsigned char lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {};
  }
}

/// Bytes of `text` that form a character or begin one: at least the first.
std::size_t valid_bytes(std::string_view text, std::size_t length) {
  std::size_t count = 1;
  while (count < std::min(length, text.size())) {
    const ByteRange range =
        count == 1 ? second_byte(static_cast<unsigned char>(text[0])) : ByteRange{};
    if (!range.holds(text[count])) break;
    ++count;
  }
  return count;
}

/// Moves whole characters from `bytes` to the result; what may still become one stays.
std::string take_characters(std::string& bytes) {
  std::string result;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::string_view rest = std::string_view(bytes).substr(at);
    const std::size_t length = character_length(static_cast<unsigned char>(rest[0]));
    const std::size_t valid = valid_bytes(rest, length);
    if (valid < length && valid == rest.size()) break;
    result += valid == length ? rest.substr(0, valid) : kReplacement;
    at += valid;
  }
  bytes.erase(0, at);
  return result;
}

}  // namespace

std::string TextStream::add(std::string_view bytes) {
  if (stopped_) return "";
  bytes_ += bytes;
  text_ += take_characters(bytes_);
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, text_.find(stop));
  if (end == std::string::npos) return release(possible_stop());
  stopped_ = true;
  return release(end);
}

std::string TextStream::finish() {
  if (stopped_) return "";
  if (!bytes_.empty()) text_ += kReplacement;
  bytes_.clear();
  return release(text_.size());
}

std::string TextStream::release(std::size_t count) {
  std::string result = text_.substr(0, count);
  text_.erase(0, count);
  return result;
}

/// Where the longest end of the text starts that a stop string may begin with.
std::size_t TextStream::possible_stop() const {
  std::size_t held = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t size = std::min(stop.size() - 1, text_.size()); size > held; --size) {
      if (text_.ends_with(std::string_view(stop).substr(0, size))) held = size;
    }
  }
  return text_.size() - held;
}

}  // namespace ddp::train
