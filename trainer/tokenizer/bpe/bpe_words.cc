#include "trainer/tokenizer/bpe/bpe_words.h"

#include <fmt/format.h>

#include "trainer/runtime/error.h"
#include "trainer/tokenizer/bpe/byte_alphabet.h"
#include "trainer/tokenizer/word_splitter.h"

namespace ddp::train {

BpeWords::BpeWords(const BpeSpec& spec) : stages_(spec.words), merges_(spec.merges) {
  token_of_byte_.fill(-1);
  for (std::size_t id = 0; id < spec.vocabulary.size(); ++id) {
    const auto bytes = symbols_to_bytes(spec.vocabulary[id]);
    if (!bytes || bytes->empty()) continue;
    if (bytes->size() == 1)
      token_of_byte_[static_cast<unsigned char>(bytes->front())] = static_cast<int32_t>(id);
    if (spec.ignore_merges) whole_words_.emplace(*bytes, static_cast<int32_t>(id));
  }
}

void BpeWords::encode(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& out) const {
  for_each_word(stages_, text, [&](std::string_view word) {
    // The cache reads the bytes after a short word, too, so that it needs the text around it.
    const auto at = static_cast<std::size_t>(word.data() - text.data());
    encode_cached(text, at, word.size(), scratch, out,
                  [&](std::string_view w) { encode_word(w, scratch, out); });
  });
}

void BpeWords::encode_word(std::string_view word, BpeScratch& scratch,
                           std::vector<int32_t>& out) const {
  if (!whole_words_.empty()) {
    const auto whole = whole_words_.find(std::string(word));
    if (whole != whole_words_.end()) return out.push_back(whole->second);
  }
  split_to_bytes(word, scratch.tokens);
  merge_pairs(merges_, scratch);
  out.insert(out.end(), scratch.tokens.begin(), scratch.tokens.end());
}

void BpeWords::split_to_bytes(std::string_view word, std::vector<int32_t>& tokens) const {
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

}  // namespace ddp::train
