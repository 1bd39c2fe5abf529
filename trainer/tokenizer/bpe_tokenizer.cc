#include "trainer/tokenizer/bpe_tokenizer.h"

#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/tokenizer/bpe_file.h"
#include "trainer/tokenizer/byte_alphabet.h"
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

std::optional<int32_t> find_end_of_text(const BpeSpec& spec) {
  for (const AddedToken& token : spec.added) {
    if (token.content == kEndOfText || token.content == kLlamaEndOfText) return token.id;
  }
  return std::nullopt;
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeSpec spec)
    : spec_(std::move(spec)),
      words_(spec_),
      added_(spec_.added),
      bytes_(bytes_of_tokens(spec_)),
      end_of_text_(find_end_of_text(spec_)) {}

std::unique_ptr<BpeScratch> BpeTokenizer::take_scratch() const {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<BpeScratch>();
  auto scratch = std::move(idle_.back());
  idle_.pop_back();
  return scratch;
}

void BpeTokenizer::give_back(std::unique_ptr<BpeScratch> scratch) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(scratch));
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  if (!spec_.other_words.empty()) {
    throw UserError(
        "the tokenizer cannot encode text: its pre_tokenizer is 'Sequence', and this trainer "
        "splits text into GPT-2's words only; use files of tokens, or another tokenizer");
  }
  constexpr std::size_t kFewestBytes = 3;  // a token of ordinary text has more
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() / kFewestBytes + 1);
  auto scratch = take_scratch();
  added_.split(
      text, [&](std::string_view between) { encode_text(between, *scratch, tokens); },
      [&](int32_t token) { tokens.push_back(token); });
  give_back(std::move(scratch));
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
    if (always_splits(text, cut) && !added_.lies_across(text, cut)) return cut;
  }
  return 0;
}

}  // namespace ddp::train
