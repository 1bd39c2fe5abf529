#include "trainer/tokenizer/char_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

struct CodePoint {
  uint32_t value = 0;
  std::size_t bytes = 0;  // 0: not valid UTF-8
};

std::size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

// Decodes one code point by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
CodePoint decode_one(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t length = sequence_length(lead);
  if (length == 0 || at + length > text.size()) return {};
  if (length == 1) return {lead, 1};
  uint32_t value = lead & (0xFFU >> (length + 1U));
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[at + i]);
    if ((next & 0xC0U) != 0x80U) return {};
    value = (value << 6U) | (next & 0x3FU);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kSmallest[length] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
    return {};
  return {value, length};
}

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

template <typename Visit>
void for_each_code_point(std::string_view text, Visit visit) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_one(text, at);
    if (point.bytes == 0) {
      throw UserError("the text is not valid UTF-8 at byte " + std::to_string(at) +
                      "; convert it, for example with iconv -t UTF-8");
    }
    visit(point.value, text.substr(at, point.bytes));
    at += point.bytes;
  }
}

}  // namespace

CharTokenizer::CharTokenizer(std::vector<std::string> characters)
    : characters_(std::move(characters)) {
  for (std::size_t i = 0; i < characters_.size(); ++i) {
    const auto point = characters_[i].empty() ? CodePoint{} : decode_one(characters_[i], 0);
    const bool whole = point.bytes != 0 && point.bytes == characters_[i].size();
    if (!whole || !index_.emplace(point.value, static_cast<int32_t>(i)).second) {
      throw RunError("vocabulary entry " + std::to_string(i) +
                     " is not one character of its own: damaged snapshot?");
    }
  }
}

CharTokenizer CharTokenizer::from_text(std::string_view text) {
  std::set<uint32_t> seen;
  std::vector<std::string> characters;
  std::vector<std::pair<uint32_t, std::string>> found;
  for_each_code_point(text, [&](uint32_t value, std::string_view bytes) {
    if (seen.insert(value).second) found.emplace_back(value, bytes);
  });
  std::sort(found.begin(), found.end());
  characters.reserve(found.size());
  for (auto& [value, bytes] : found) characters.push_back(std::move(bytes));
  return CharTokenizer(std::move(characters));
}

std::vector<int32_t> CharTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for_each_code_point(text, [&](uint32_t value, std::string_view bytes) {
    const auto found = index_.find(value);
    if (found == index_.end()) {
      throw UserError("character '" + std::string(bytes) + "' (code point " +
                      std::to_string(value) + ") is not in the vocabulary of " +
                      std::to_string(characters_.size()) +
                      " characters; use only characters of the training text");
    }
    tokens.push_back(found->second);
  });
  return tokens;
}

std::string CharTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) text += characters_.at(static_cast<std::size_t>(token));
  return text;
}

std::string CharTokenizer::state() const {
  return nlohmann::json({{"kind", "char"}, {"characters", characters_}}).dump();
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), starts_character);
}

std::string_view truncate_text(std::string_view text, double share) {
  if (share >= 1.0) return text;
  auto left = static_cast<int64_t>(static_cast<double>(count_characters(text)) * share);
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (starts_character(text[at]) && left-- == 0) return text.substr(0, at);
  }
  return text;
}

}  // namespace ddp::train
