#include "trainer/tokenizer/sentencepiece_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "trainer/runtime/utf8.h"
#include "trainer/tokenizer/bpe/bpe_file.h"
#include "trainer/tokenizer/bpe/bpe_tokenizer.h"

namespace ddp::train {
namespace {

using Prepend = SentencePieceRules::Prepend;

constexpr std::string_view kMark = "\u2581";
constexpr std::size_t kByteValues = 256;

/// `start`, then `text` with its spaces as marks.
std::string with_marks_for_spaces(std::string_view start, std::string_view text) {
  std::string out(start);
  out.reserve(text.size() + text.size() / 4);
  for (const char c : text) {
    if (c == ' ') {
      out += kMark;
    } else {
      out += c;
    }
  }
  return out;
}

std::string with_spaces_for_marks(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const bool mark = text.starts_with(kMark);
    out += mark ? ' ' : text.front();
    text.remove_prefix(mark ? kMark.size() : 1);
  }
  return out;
}

/// The byte that <0x0A> stands for.
std::optional<char> byte_of(std::string_view token) {
  unsigned value = 0;
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  const char* end = token.data() + 5;
  if (std::from_chars(token.data() + 3, end, value, 16).ptr != end) return std::nullopt;
  return static_cast<char>(value);
}

std::vector<std::string> bytes_of_pieces(const BpeSpec& spec) {
  std::vector<std::string> bytes;
  for (const std::string& token : spec.vocabulary) {
    const auto byte = spec.sentencepiece->byte_fallback ? byte_of(token) : std::nullopt;
    bytes.push_back(byte ? std::string(1, *byte) : with_spaces_for_marks(token));
  }
  // `tokenizers` decodes these to what they are looked for as: with a mark in front.
  const bool marked = spec.sentencepiece->prepend == Prepend::kAlways;
  for (const AddedToken& token : spec.added) {
    if (marked && token.normalized) bytes[static_cast<std::size_t>(token.id)].insert(0, 1, ' ');
  }
  return bytes;
}

std::unordered_map<std::string, int32_t> ids_by_piece(const BpeSpec& spec) {
  std::unordered_map<std::string, int32_t> ids;
  for (std::size_t id = 0; id < spec.vocabulary.size(); ++id)
    ids.emplace(spec.vocabulary[id], static_cast<int32_t>(id));
  return ids;
}

std::vector<int32_t> byte_tokens_of(const std::unordered_map<std::string, int32_t>& ids) {
  std::vector<int32_t> tokens;
  for (std::size_t byte = 0; byte < kByteValues; ++byte) {
    const auto found = ids.find(fmt::format("<0x{:02X}>", byte));
    tokens.push_back(found == ids.end() ? -1 : found->second);
  }
  return tokens;
}

/// The Prepend and Replace normalizers; other rules put the marks after normalization.
AddedTokens::Normalize normalizer_of(const SentencePieceRules& rules) {
  if (!rules.marks_first) return nullptr;
  const std::string_view start = rules.prepend == Prepend::kAlways ? kMark : "";
  return [start](std::string_view text) {
    return text.empty() ? std::string() : with_marks_for_spaces(start, text);
  };
}

/// The end of the word at `at`: the next mark that follows another character.
std::size_t next_word(std::string_view text, std::size_t at, bool each_mark) {
  std::size_t end = text.find(kMark, at + 1);
  while (!each_mark && end != std::string_view::npos && end >= kMark.size() &&
         text.substr(end - kMark.size(), kMark.size()) == kMark && end - kMark.size() >= at)
    end = text.find(kMark, end + 1);
  return std::min(end, text.size());
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(BpeSpec spec)
    : spec_(std::move(spec)),
      rules_(*spec_.sentencepiece),
      ids_(ids_by_piece(spec_)),
      byte_tokens_(byte_tokens_of(ids_)),
      merges_(spec_.merges),
      added_(spec_.added, normalizer_of(rules_)),
      bytes_(bytes_of_pieces(spec_)),
      by_words_(rules_.split || !merges_across_words()),
      end_of_text_(end_of_text_of(spec_)) {}

// Where no merge joins a character with a mark after it, words do not touch each other: their
// tokens are those of the whole text, and most are remembered.
bool SentencePieceTokenizer::merges_across_words() const {
  const auto token = [&](int32_t id) -> std::string_view {
    return spec_.vocabulary[static_cast<std::size_t>(id)];
  };
  const bool mark_is_known = ids_.contains(std::string(kMark));
  return spec_.ignore_merges || !mark_is_known ||
         std::any_of(spec_.merges.begin(), spec_.merges.end(), [&](const Merge& merge) {
           return !token(merge.left).ends_with(kMark) && token(merge.right).starts_with(kMark);
         });
}

std::optional<int32_t> SentencePieceTokenizer::token_of(std::string_view text) const {
  return added_token_of(spec_, text);
}

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  scratch_.use([&](BpeScratch& scratch) {
    added_.split(
        text,
        [&](std::string_view between, bool first) {
          encode_text(with_marks(between, first), scratch, tokens);
        },
        [&](int32_t token) { tokens.push_back(token); });
  });
  return tokens;
}

std::string SentencePieceTokenizer::with_marks(std::string_view text, bool first) const {
  if (rules_.marks_first) return std::string(text);
  const bool wanted =
      rules_.prepend == Prepend::kMissing || (rules_.prepend == Prepend::kFirst && first);
  const bool marked = text.starts_with(' ') || text.starts_with(kMark);
  return with_marks_for_spaces(wanted && !marked ? kMark : "", text);
}

void SentencePieceTokenizer::encode_text(std::string_view text, BpeScratch& scratch,
                                         std::vector<int32_t>& out) const {
  const auto encode = [&](std::string_view word) { encode_word(word, scratch, out); };
  if (!by_words_) return encode(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = next_word(text, at, rules_.split);
    encode_cached(text, at, end - at, scratch, out, encode);
    at = end;
  }
}

void SentencePieceTokenizer::encode_word(std::string_view word, BpeScratch& scratch,
                                         std::vector<int32_t>& out) const {
  if (spec_.ignore_merges) {
    const auto whole = ids_.find(std::string(word));
    if (whole != ids_.end()) return out.push_back(whole->second);
  }
  scratch.tokens.clear();
  bool after_unknown = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t bytes = std::max<std::size_t>(decode_utf8(word, at).bytes, 1);
    add_character(word.substr(at, bytes), after_unknown, scratch.tokens);
    at += bytes;
  }
  merge_pairs(merges_, scratch);
  out.insert(out.end(), scratch.tokens.begin(), scratch.tokens.end());
}

void SentencePieceTokenizer::add_character(std::string_view character, bool& after_unknown,
                                           std::vector<int32_t>& tokens) const {
  const auto known = ids_.find(std::string(character));
  if (known != ids_.end()) {
    tokens.push_back(known->second);
  } else if (!rules_.byte_fallback || !add_bytes(character, tokens)) {
    if (rules_.unknown && !(after_unknown && rules_.fuse_unknown))
      tokens.push_back(*rules_.unknown);
    after_unknown = true;
    return;
  }
  after_unknown = false;
}

bool SentencePieceTokenizer::add_bytes(std::string_view character,
                                       std::vector<int32_t>& tokens) const {
  const auto token = [&](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(character.begin(), character.end(), [&](char c) { return token(c) < 0; }))
    return false;
  for (const char byte : character) tokens.push_back(token(byte));
  return true;
}

std::string SentencePieceTokenizer::decode(int32_t token) const {
  return bytes_.at(static_cast<std::size_t>(token));
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) text += decode(token);
  if (rules_.strip_first_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string SentencePieceTokenizer::state() const { return tokenizer_json(spec_); }

}  // namespace ddp::train
