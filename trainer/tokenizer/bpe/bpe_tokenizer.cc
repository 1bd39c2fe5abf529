#include "trainer/tokenizer/bpe/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

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
      words_(spec_),
      added_(spec_.added, normalizer_of(spec_)),
      bytes_(bytes_of_tokens(spec_)),
      end_of_text_(end_of_text_of(spec_)) {}

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
  if (!spec_.add_prefix_space || text.front() == ' ') return words_.encode(text, scratch, out);
  std::string spaced(1, ' ');
  spaced.append(text);
  words_.encode(spaced, scratch, out);
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
