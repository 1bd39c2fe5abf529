#include "trainer/tokenizer/wordpiece/wordpiece_tokenizer.h"

#include <algorithm>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/tokenizer/char_tokenizer.h"
#include "trainer/tokenizer/wordpiece/wordpiece_file.h"

namespace ddp::train {
namespace {

constexpr BertTokenNames kNamesOfBert = {kPadToken, kFirstToken, kLastToken, kMaskToken,
                                         kUnknownToken};
constexpr BertTokenNames kNamesOfRoberta = {"<pad>", "<s>", "</s>", "<mask>", "<unk>"};

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

}  // namespace

const BertTokenNames& token_names_of(const Tokenizer& tokenizer) {
  const bool like_roberta =
      !tokenizer.token_of(kNamesOfBert.first) && tokenizer.token_of(kNamesOfRoberta.first);
  return like_roberta ? kNamesOfRoberta : kNamesOfBert;
}

WordpieceTokenizer::WordpieceTokenizer(WordpieceSpec spec)
    : spec_(std::move(spec)), added_(spec_.added) {
  for (std::size_t i = 0; i < spec_.vocabulary.size(); ++i) {
    const std::string_view token = spec_.vocabulary[i];
    const auto id = static_cast<int32_t>(i);
    starts_.emplace(token, id);
    longest_piece_ = std::max(longest_piece_, token.size());
    if (token.starts_with(spec_.prefix))
      continuations_.emplace(token.substr(spec_.prefix.size()), id);
  }
  const auto unknown = token_of(spec_.unknown);
  if (!unknown)
    throw UserError("the vocabulary has no " + quoted_part(spec_.unknown) +
                    ", the token of unknown words; add it as a line of its own");
  unknown_ = *unknown;
}

std::optional<int32_t> WordpieceTokenizer::token_of(std::string_view text) const {
  const auto found = starts_.find(text);
  return found == starts_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<int32_t> WordpieceTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  const auto add_words = [&](std::string_view between, bool /*first*/) {
    for_each_bert_word(between, spec_.words,
                       [&](std::string_view word) { add_pieces(word, tokens); });
  };
  added_.split(text, add_words, [&](int32_t token) { tokens.push_back(token); });
  return tokens;
}

// A word that the vocabulary cannot make up whole is unknown as a whole.
void WordpieceTokenizer::add_pieces(std::string_view word, std::vector<int32_t>& out) const {
  const std::size_t before = out.size();
  bool known = count_characters(word) <= spec_.longest_word;
  for (std::size_t at = 0; known && at < word.size();) {
    const auto piece = longest_piece(word, at);
    known = piece.bytes > 0;
    out.push_back(piece.token);
    at += piece.bytes;
  }
  if (known) return;
  out.resize(before);
  out.push_back(unknown_);
}

WordpieceTokenizer::Piece WordpieceTokenizer::longest_piece(std::string_view word,
                                                            std::size_t at) const {
  const auto& pieces = at == 0 ? starts_ : continuations_;
  for (std::size_t bytes = std::min(word.size() - at, longest_piece_); bytes > 0; --bytes) {
    if (at + bytes < word.size() && !begins_character(word[at + bytes])) continue;
    const auto found = pieces.find(word.substr(at, bytes));
    if (found != pieces.end()) return {found->second, bytes};
  }
  return {};
}

std::string WordpieceTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    const std::string& piece = spec_.vocabulary.at(static_cast<std::size_t>(token));
    const bool continues = !text.empty() && piece.starts_with(spec_.prefix);
    if (!text.empty() && !continues) text += ' ';
    text += continues ? piece.substr(spec_.prefix.size()) : piece;
  }
  return text;
}

std::string WordpieceTokenizer::state() const { return wordpiece_json(spec_); }

std::size_t WordpieceTokenizer::safe_prefix(std::string_view text) const {
  const std::size_t unseen = added_.longest() == 0 ? 0 : added_.longest() - 1;
  for (std::size_t at = text.size() > unseen ? text.size() - unseen : 0; at > 1; --at) {
    const std::size_t cut = at - 1;
    if ((text[cut] == '\n' || text[cut] == ' ') && added_.may_cut(text, cut)) return cut;
  }
  return 0;
}

}  // namespace ddp::train
