#include "trainer/tokenizer/bpe/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/tokenizer/bpe/bpe_file.h"
#include "trainer/tokenizer/bpe/byte_alphabet.h"
#include "trainer/tokenizer/normal_form.h"
#include "trainer/tokenizer/word_splitter.h"

namespace ddp::train {
namespace {

std::vector<std::string> bytes_of_tokens(const BpeSpec& spec) {
  std::vector<std::string> bytes;
  bytes.reserve(spec.vocabulary.size());
  for (const std::string& token : spec.vocabulary)
    bytes.push_back(symbols_to_bytes(token).value_or(token));
  for (const AddedToken& token : spec.added)
    bytes[static_cast<std::size_t>(token.id)] = token.content;
  return bytes;
}

AddedTokens::Normalize normalizer_of(const BpeSpec& spec) {
  if (!spec.nfc) return nullptr;
  return [](std::string_view text) { return is_surely_nfc(text) ? std::string(text) : nfc(text); };
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

}  // namespace

std::optional<int32_t> added_token_of(const BpeSpec& spec, std::string_view text) {
  const auto found =
      std::find_if(spec.added.begin(), spec.added.end(),
                   [text](const AddedToken& token) { return token.content == text; });
  return found == spec.added.end() ? std::nullopt : std::optional(found->id);
}

std::optional<int32_t> end_of_text_of(const BpeSpec& spec) {
  for (const AddedToken& token : spec.added) {
    if (token.end_of_text) return token.id;
  }
  for (const char* name : {kEndOfText, kLlamaEndOfText, kSentenceEnd}) {
    if (const auto token = added_token_of(spec, name)) return token;
  }
  return std::nullopt;
}

void set_end_of_text(BpeSpec& spec, const std::string& text) {
  const auto id = std::find(spec.vocabulary.begin(), spec.vocabulary.end(), text);
  if (text.empty() || id == spec.vocabulary.end()) return;
  if (!added_token_of(spec, text))
    spec.added.push_back({text, static_cast<int32_t>(id - spec.vocabulary.begin())});
  for (AddedToken& token : spec.added) token.end_of_text = false;
  const auto by_name = end_of_text_of(spec);
  for (AddedToken& token : spec.added)
    token.end_of_text = token.content == text && token.id != by_name;
}

BpeTokenizer::BpeTokenizer(BpeSpec spec)
    : spec_(std::move(spec)),
      merges_(spec_.merges),
      added_(spec_.added, normalizer_of(spec_)),
      bytes_(bytes_of_tokens(spec_)),
      end_of_text_(end_of_text_of(spec_)) {
  token_of_byte_.fill(-1);
  for (std::size_t id = 0; id < spec_.vocabulary.size(); ++id) {
    const auto bytes = symbols_to_bytes(spec_.vocabulary[id]);
    if (!bytes || bytes->empty()) continue;
    if (bytes->size() == 1)
      token_of_byte_[static_cast<unsigned char>(bytes->front())] = static_cast<int32_t>(id);
    if (spec_.ignore_merges) whole_words_.emplace(*bytes, static_cast<int32_t>(id));
  }
}

std::optional<int32_t> BpeTokenizer::token_of(std::string_view text) const {
  return added_token_of(spec_, text);
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  constexpr std::size_t kFewestBytes = 3;  // a token of ordinary text has more
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() / kFewestBytes + 1);
  scratch_.use([&](BpeScratch& scratch) {
    added_.split(
        text,
        [&](std::string_view between, bool /*first*/) { encode_text(between, scratch, tokens); },
        [&](int32_t token) { tokens.push_back(token); });
  });
  return tokens;
}

void BpeTokenizer::encode_text(std::string_view text, BpeScratch& scratch,
                               std::vector<int32_t>& out) const {
  if (!spec_.add_prefix_space || text.front() == ' ') return encode_words(text, scratch, out);
  std::string spaced(1, ' ');
  spaced.append(text);
  encode_words(spaced, scratch, out);
}

void BpeTokenizer::encode_words(std::string_view text, BpeScratch& scratch,
                                std::vector<int32_t>& out) const {
  for_each_word(spec_.words, text, [&](std::string_view word) {
    // The cache reads the bytes after a short word, too, so that it needs the text around it.
    const auto at = static_cast<std::size_t>(word.data() - text.data());
    encode_cached(text, at, word.size(), scratch, out,
                  [&](std::string_view w) { encode_word(w, scratch, out); });
  });
}

void BpeTokenizer::encode_word(std::string_view word, BpeScratch& scratch,
                               std::vector<int32_t>& out) const {
  if (!whole_words_.empty()) {
    const auto whole = whole_words_.find(std::string(word));
    if (whole != whole_words_.end()) return out.push_back(whole->second);
  }
  split_to_bytes(word, scratch.tokens);
  merge_pairs(merges_, scratch);
  out.insert(out.end(), scratch.tokens.begin(), scratch.tokens.end());
}

void BpeTokenizer::split_to_bytes(std::string_view word, std::vector<int32_t>& tokens) const {
  tokens.clear();
  for (const char byte : word) {
    const int32_t token = token_of_byte_[static_cast<unsigned char>(byte)];
    if (token < 0) {
      throw UserError(fmt::format(
          "the vocabulary has no token for the byte 0x{:02x}; train it with all 256 bytes in it",
          static_cast<unsigned char>(byte)));
    }
    tokens.push_back(token);
  }
}

std::string BpeTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) text += bytes_.at(static_cast<std::size_t>(token));
  return text;
}

std::string BpeTokenizer::state() const { return tokenizer_json(spec_); }

std::size_t BpeTokenizer::safe_prefix(std::string_view text) const {
  const std::size_t unseen = added_.longest() == 0 ? 0 : added_.longest() - 1;
  const std::size_t end = text.size() > unseen ? text.size() - unseen : 0;
  for (std::size_t at = end; at > 1; --at) {
    const std::size_t cut = at - 1;
    // A text that begins with a space gets no further one before it.
    if (spec_.add_prefix_space && text[cut] != ' ') continue;
    if (spec_.nfc && !is_ascii(text[cut])) continue;  // an accent that would be composed
    if (always_splits(spec_.words, text, cut) && added_.may_cut(text, cut)) return cut;
  }
  return 0;
}

}  // namespace ddp::train
