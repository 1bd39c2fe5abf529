#include "trainer/data/text/text_lines.h"

#include <algorithm>
#include <utility>

#include "trainer/data/tokens/memory_tokens.h"
#include "trainer/data/tokens/spilled_tokens.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/sha256.h"
#include "trainer/tokenizer/char_tokenizer.h"

namespace ddp::train {
namespace {

template <typename Value>
std::string_view bytes_of(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

void append(std::vector<int32_t>& all, const std::vector<int32_t>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

TextLines::TextLines(const Tokenizer& tokenizer, std::string_view text, int64_t min_characters,
                     int64_t most_tokens) {
  std::vector<int32_t> all;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    append(all, line_of(tokenizer, line, min_characters, most_tokens));
  }
  finish(std::move(all));
}

TextLines::TextLines(const Tokenizer& tokenizer, Documents& documents, int64_t min_characters,
                     int64_t most_tokens) {
  std::string text;
  Sha256 sum;
  auto all = spill_tokens(tokenizer, [&](std::vector<int32_t>& tokens) {
    if (!documents.next(text)) return false;
    tokens.clear();
    try {
      tokens = line_of(tokenizer, text, min_characters, most_tokens);
    } catch (const UserError& error) {
      documents.refuse(error.what());
    }
    sum.update(bytes_of(tokens));
    return true;
  });
  finish(std::move(all), sum.hex());
}

std::vector<int32_t> TextLines::line_of(const Tokenizer& tokenizer, std::string_view line,
                                        int64_t min_characters, int64_t most_tokens) {
  ++lines_in_text_;
  if (count_characters(line) < min_characters) return {};
  auto tokens = tokenizer.encode(line);
  if (!tokens.empty()) add(tokens, most_tokens);
  return tokens;
}

TextLines::TextLines(const Tokenizer& tokenizer, std::span<const std::string> texts,
                     int64_t most_tokens)
    : lines_in_text_(static_cast<int64_t>(texts.size())) {
  std::vector<int32_t> all;
  for (const std::string& text : texts) {
    auto tokens = tokenizer.encode(text);
    add(tokens, most_tokens);
    append(all, tokens);
  }
  finish(std::move(all));
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
  std::vector<int32_t> all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto first = tokenizer.encode(texts[i]), second = tokenizer.encode(pairs[i]);
    lengths_.add(std::ssize(first) + std::ssize(between) + std::ssize(second));
    const JoinedPair pair = joined_pair(first, second, between, most_tokens);
    append(all, pair.tokens);
    ends_.push_back(all.size());
    seconds_.push_back(pair.second);
  }
  finish(std::move(all));
}

void TextLines::add(std::vector<int32_t>& tokens, int64_t most_tokens) {
  lengths_.add(std::ssize(tokens));
  tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(most_tokens)));
  ends_.push_back(tokens.size() + (ends_.empty() ? 0 : ends_.back()));
}

void TextLines::finish(std::vector<int32_t> tokens) {
  const std::string digest = sha256_hex(bytes_of(tokens));
  finish(std::make_unique<MemoryTokens>(std::move(tokens), ""), digest);
}

void TextLines::finish(std::unique_ptr<TokenSequence> tokens, const std::string& digest) {
  tokens_ = std::move(tokens);
  std::string parts = digest + sha256_hex(bytes_of(ends_));
  if (!seconds_.empty()) parts += sha256_hex(bytes_of(seconds_));
  fingerprint_ = sha256_hex(parts);
}

std::optional<int64_t> TextLines::second(int64_t line) const {
  if (seconds_.empty()) return std::nullopt;
  return seconds_[static_cast<std::size_t>(line)];
}

int64_t TextLines::longest() const {
  int64_t most = 0;
  for (int64_t line = 0; line < size(); ++line) most = std::max(most, length(line));
  return most;
}

std::vector<int32_t> TextLines::operator[](int64_t line) const {
  std::vector<int64_t> tokens(static_cast<std::size_t>(length(line)));
  tokens_->copy(begin_of(line), tokens);
  return {tokens.begin(), tokens.end()};
}

}  // namespace ddp::train
