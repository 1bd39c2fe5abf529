#include "trainer/tokenizer/char_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/tokenizer/utf8.h"

namespace ddp::train {
namespace {

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

template <typename Visit>
void for_each_code_point(std::string_view text, Visit visit) {
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const CodePoint point = byte < 0x80 ? CodePoint{byte, 1} : decode_utf8(text, at);
    if (point.bytes == 0) throw UserError("the text " + not_utf8(text, at));
    visit(point.value, text.substr(at, point.bytes));
    at += point.bytes;
  }
}

}  // namespace

CharTokenizer::CharTokenizer(std::vector<std::string> characters)
    : characters_(std::move(characters)) {
  for (std::size_t i = 0; i < characters_.size(); ++i) {
    const auto point = characters_[i].empty() ? CodePoint{} : decode_utf8(characters_[i], 0);
    const bool whole = point.bytes != 0 && point.bytes == characters_[i].size();
    if (point.value >= index_.size()) index_.resize(point.value + std::size_t{1}, -1);
    if (!whole || std::exchange(index_[point.value], static_cast<int32_t>(i)) != -1) {
      throw RunError("vocabulary entry " + std::to_string(i) +
                     " is not one character of its own: damaged snapshot?");
    }
  }
}

CharTokenizer CharTokenizer::from_text(std::string_view text) {
  constexpr uint32_t kCodePoints = 0x110000;
  std::vector<char> seen(kCodePoints, 0);
  for_each_code_point(text, [&](uint32_t value, std::string_view) { seen[value] = 1; });
  std::vector<std::string> characters;
  for (uint32_t value = 0; value < kCodePoints; ++value) {
    if (seen[value] != 0) characters.push_back(encode_utf8(value));
  }
  return CharTokenizer(std::move(characters));
}

std::vector<int32_t> CharTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for_each_code_point(text, [&](uint32_t value, std::string_view bytes) {
    const int32_t id = value < index_.size() ? index_[value] : -1;
    if (id < 0) {
      throw UserError("character '" + std::string(bytes) + "' (code point " +
                      std::to_string(value) + ") is not in the vocabulary of " +
                      std::to_string(characters_.size()) +
                      " characters; use only characters of the training text");
    }
    tokens.push_back(id);
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

std::size_t CharTokenizer::safe_prefix(std::string_view text) const {
  return whole_characters(text);
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
