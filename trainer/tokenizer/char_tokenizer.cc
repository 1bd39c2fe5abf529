#include "trainer/tokenizer/char_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/runtime/error.h"
#include "trainer/runtime/utf8.h"

namespace ddp::train {
namespace {

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

template <typename Visit>
void for_each_code_point(std::string_view text, Visit visit) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
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
    const auto point = characters_[i].empty() ? CodePoint{} : decode_utf8(characters_[i], 0);
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
