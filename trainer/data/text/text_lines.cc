#include "trainer/data/text/text_lines.h"

#include <algorithm>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/sha256.h"
#include "trainer/tokenizer/char_tokenizer.h"

namespace ddp::train {
namespace {

template <typename Value>
std::string_view bytes_of(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

}  // namespace

TextLines::TextLines(const Tokenizer& tokenizer, std::string_view text, int64_t min_characters,
                     int64_t most_tokens) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    add_line(tokenizer, line, min_characters, most_tokens);
  }
  finish();
}

TextLines::TextLines(const Tokenizer& tokenizer, Documents& documents, int64_t min_characters,
                     int64_t most_tokens) {
  for (std::string text; documents.next(text);) {
    try {
      add_line(tokenizer, text, min_characters, most_tokens);
    } catch (const UserError& error) {
      documents.refuse(error.what());
    }
  }
  finish();
}

void TextLines::add_line(const Tokenizer& tokenizer, std::string_view line, int64_t min_characters,
                         int64_t most_tokens) {
  ++lines_in_text_;
  if (count_characters(line) < min_characters) return;
  const auto tokens = tokenizer.encode(line);
  if (!tokens.empty()) add(tokens, most_tokens);
}

TextLines::TextLines(const Tokenizer& tokenizer, std::span<const std::string> texts,
                     int64_t most_tokens)
    : lines_in_text_(static_cast<int64_t>(texts.size())) {
  for (const std::string& text : texts) add(tokenizer.encode(text), most_tokens);
  finish();
}

JoinedPair joined_pair(std::span<const int32_t> first, std::span<const int32_t> second,
                       std::span<const int32_t> between, int64_t most_tokens) {
  const auto room =
      static_cast<std::size_t>(std::max<int64_t>(0, most_tokens - std::ssize(between)));
  std::size_t shorter = std::min(first.size(), second.size());
  std::size_t longer = std::max(first.size(), second.size());
  if (shorter + longer > room) {
    longer = std::max(shorter, room - std::min(room, shorter));
    if (shorter + longer > room) {
      shorter = room / 2;
      longer = room - shorter;
    }
  }
  const bool first_is_longer = first.size() > second.size();
  first = first.first(first_is_longer ? longer : shorter);
  second = second.first(first_is_longer ? shorter : longer);
  JoinedPair pair{{first.begin(), first.end()}, std::ssize(first) + std::ssize(between)};
  pair.tokens.insert(pair.tokens.end(), between.begin(), between.end());
  pair.tokens.insert(pair.tokens.end(), second.begin(), second.end());
  return pair;
}

TextLines::TextLines(const Tokenizer& tokenizer, std::span<const std::string> texts,
                     std::span<const std::string> pairs, std::span<const int32_t> between,
                     int64_t most_tokens)
    : lines_in_text_(static_cast<int64_t>(texts.size())) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto first = tokenizer.encode(texts[i]), second = tokenizer.encode(pairs[i]);
    lengths_.add(std::ssize(first) + std::ssize(between) + std::ssize(second));
    const JoinedPair pair = joined_pair(first, second, between, most_tokens);
    tokens_.insert(tokens_.end(), pair.tokens.begin(), pair.tokens.end());
    ends_.push_back(tokens_.size());
    seconds_.push_back(pair.second);
  }
  finish();
}

void TextLines::add(std::span<const int32_t> tokens, int64_t most_tokens) {
  lengths_.add(std::ssize(tokens));
  const auto used = tokens.first(std::min(tokens.size(), static_cast<std::size_t>(most_tokens)));
  tokens_.insert(tokens_.end(), used.begin(), used.end());
  ends_.push_back(tokens_.size());
}

void TextLines::finish() {
  std::string parts = sha256_hex(bytes_of(tokens_)) + sha256_hex(bytes_of(ends_));
  if (!seconds_.empty()) parts += sha256_hex(bytes_of(seconds_));
  fingerprint_ = sha256_hex(parts);
}

std::optional<int64_t> TextLines::second(int64_t line) const {
  if (seconds_.empty()) return std::nullopt;
  return seconds_[static_cast<std::size_t>(line)];
}

int64_t TextLines::longest() const {
  std::size_t most = 0, first = 0;
  for (const std::size_t end : ends_) {
    most = std::max(most, end - first);
    first = end;
  }
  return static_cast<int64_t>(most);
}

std::span<const int32_t> TextLines::operator[](int64_t line) const {
  const auto at = static_cast<std::size_t>(line);
  const std::size_t first = at == 0 ? 0 : ends_[at - 1];
  return std::span(tokens_).subspan(first, ends_[at] - first);
}

}  // namespace ddp::train
