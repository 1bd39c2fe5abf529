#include "trainer/tokenizer/bpe/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "trainer/runtime/error.h"
#include "trainer/tokenizer/bpe/byte_alphabet.h"
#include "trainer/tokenizer/bpe/pair_training.h"
#include "trainer/tokenizer/word_splitter.h"

namespace ddp::train {
namespace {

/// Sorted by the symbols' code points, which UTF-8 keeps.
void add_alphabet(PairTraining& training) {
  std::vector<std::string> symbols;
  for (unsigned byte = 0; byte < 256; ++byte)
    symbols.push_back(byte_symbol(static_cast<unsigned char>(byte)));
  std::sort(symbols.begin(), symbols.end());
  for (const std::string& symbol : symbols) training.add_token(symbol);
}

void add_words(PairTraining& training, const WordCounts& words) {
  std::array<int32_t, 256> token_of_byte{};
  for (unsigned byte = 0; byte < 256; ++byte)
    token_of_byte[byte] = training.add_token(byte_symbol(static_cast<unsigned char>(byte)));
  for (const auto& [word, count] : words) {
    std::vector<int32_t> tokens;
    for (const char byte : word) tokens.push_back(token_of_byte[static_cast<unsigned char>(byte)]);
    training.add_word(std::move(tokens), count);
  }
}

}  // namespace

void WordCounts::add_text(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = word_end(text, at);
    add_word(text.substr(at, end - at));
    at = end;
  }
}

void WordCounts::add_word(std::string_view word) {
  const auto found = counts_.find(word);
  if (found == counts_.end()) {
    counts_.emplace(word, 1);
  } else {
    ++found->second;
  }
}

void WordCounts::add(const WordCounts& other) {
  for (const auto& [word, count] : other.counts_) counts_[word] += count;
}

BpeSpec train_bpe(const WordCounts& words, int64_t size) {
  constexpr int64_t kSmallest = 257;
  if (size < kSmallest)
    throw UserError("--vocab_size: " + std::to_string(size) +
                    " is too small: the 256 bytes and <|endoftext|> need 257");
  PairTraining training(static_cast<std::size_t>(size), /*prefix=*/"", /*fewest=*/1);
  training.add_token(kEndOfText);
  add_alphabet(training);
  add_words(training, words);
  training.run();
  BpeSpec spec;
  spec.vocabulary = std::move(training.vocabulary());
  spec.merges = std::move(training.merges());
  spec.added.push_back({kEndOfText, 0});
  return spec;
}

}  // namespace ddp::train
