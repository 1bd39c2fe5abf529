#include "trainer/tokenizer/wordpiece/wordpiece_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/runtime/utf8.h"
#include "trainer/tokenizer/bpe/pair_training.h"
#include "trainer/tokenizer/wordpiece/wordpiece_file.h"

namespace ddp::train {
namespace {

constexpr int64_t kFewestPairs = 2;
constexpr const char* kContinues = "##";

template <typename Visit>
void for_each_character(const std::string& word, Visit visit) {
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t bytes = utf8_length(static_cast<unsigned char>(word[at]));
    visit(word.substr(at, bytes));
    at += bytes;
  }
}

/// The most frequent ones; of equals those of smaller code points.
std::set<std::string> frequent_characters(const WordCounts& words, std::size_t most) {
  std::map<std::string, int64_t> counts;
  for (const auto& [word, count] : words)
    for_each_character(word, [&, n = count](const std::string& c) { counts[c] += n; });
  std::vector<std::pair<int64_t, std::string>> ranked;
  for (const auto& [character, count] : counts) ranked.emplace_back(-count, character);
  std::sort(ranked.begin(), ranked.end());
  ranked.resize(std::min(ranked.size(), most));
  std::set<std::string> kept;
  for (auto& [count, character] : ranked) kept.insert(std::move(character));
  return kept;
}

/// Characters that are not in the alphabet are left out.
std::vector<std::string> symbols_of(const std::string& word,
                                    const std::set<std::string>& alphabet) {
  std::vector<std::string> symbols;
  for_each_character(word, [&](const std::string& c) {
    if (alphabet.count(c) != 0) symbols.push_back(symbols.empty() ? c : kContinues + c);
  });
  return symbols;
}

void add_characters(PairTraining& training, const WordCounts& words,
                    const std::set<std::string>& alphabet) {
  std::set<std::string> within;
  for (const auto& [word, count] : words) {
    const auto symbols = symbols_of(word, alphabet);
    if (symbols.size() > 1) within.insert(symbols.begin() + 1, symbols.end());
  }
  for (const std::string& symbol : alphabet) training.add_token(symbol);
  for (const std::string& symbol : within) training.add_token(symbol);
}

}  // namespace

WordpieceSpec train_wordpiece(const WordCounts& words, int64_t size, std::size_t most_characters) {
  PairTraining training(static_cast<std::size_t>(size), kContinues, kFewestPairs);
  for (const char* token : {kPadToken, kUnknownToken, kFirstToken, kLastToken, kMaskToken})
    training.add_token(token);
  const auto alphabet = frequent_characters(words, most_characters);
  add_characters(training, words, alphabet);
  const auto least = static_cast<int64_t>(training.vocabulary().size());
  if (size < least) {
    throw UserError(
        fmt::format("--vocab_size: {} is too small: the characters of the input and the five "
                    "special tokens need {}",
                    size, least));
  }
  for (const auto& [word, count] : words) {
    std::vector<int32_t> tokens;
    for (const std::string& symbol : symbols_of(word, alphabet))
      tokens.push_back(training.add_token(symbol));
    training.add_word(std::move(tokens), count);
  }
  training.run();
  WordpieceSpec spec;
  spec.vocabulary = std::move(training.vocabulary());
  spec.added = special_tokens(spec.vocabulary);
  return spec;
}

}  // namespace ddp::train
