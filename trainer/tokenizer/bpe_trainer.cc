#include "trainer/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trainer/runtime/error.h"
#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/word_splitter.h"

namespace ddp::train {
namespace {

using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const uint64_t key = (static_cast<uint64_t>(static_cast<uint32_t>(pair.first)) << 32U) |
                         static_cast<uint32_t>(pair.second);
    const uint64_t mixed = key * 0x9E3779B97F4A7C15ULL;
    return static_cast<std::size_t>(mixed ^ (mixed >> 32U));
  }
};

template <typename Value>
using PairMap = std::unordered_map<Pair, Value, PairHash>;

/// A pair that may be merged next, and the words where it was formed.
struct PairInWords {
  Pair pair;
  int64_t count = 0;
  std::vector<uint32_t> words;

  bool operator<(const PairInWords& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

/// The state of one training: every word as the tokens that it is made of so far.
class BpeTraining {
 public:
  BpeTraining(const WordCounts& words, std::size_t size) : size_(size) {
    add_token(kEndOfText);
    spec_.added.push_back({kEndOfText, 0});
    add_alphabet();
    add_words(words);
  }

  BpeSpec run() {
    while (spec_.vocabulary.size() < size_ && !queue_.empty()) {
      PairInWords top = pop_most_frequent();
      const int64_t count = counts_[top.pair];
      if (top.count != count) {
        top.count = count;
        push(std::move(top));
        continue;
      }
      if (count < 1) break;
      merge(top);
    }
    return std::move(spec_);
  }

 private:
  int32_t add_token(const std::string& text) {
    const auto [at, fresh] = ids_.emplace(text, static_cast<int32_t>(spec_.vocabulary.size()));
    if (fresh) spec_.vocabulary.push_back(text);
    return at->second;
  }

  /// Sorted by the symbols' code points, which UTF-8 keeps.
  void add_alphabet() {
    std::vector<std::string> symbols;
    for (unsigned byte = 0; byte < 256; ++byte)
      symbols.push_back(byte_symbol(static_cast<unsigned char>(byte)));
    std::sort(symbols.begin(), symbols.end());
    for (const std::string& symbol : symbols) add_token(symbol);
  }

  void add_words(const WordCounts& words) {
    PairMap<std::vector<uint32_t>> places;
    for (const auto& [word, count] : words) {
      const auto index = static_cast<uint32_t>(words_.size());
      std::vector<int32_t>& tokens = words_.emplace_back();
      word_counts_.push_back(count);
      for (const char byte : word)
        tokens.push_back(ids_.at(byte_symbol(static_cast<unsigned char>(byte))));
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
        change(places, {tokens[i], tokens[i + 1]}, index, 1);
    }
    push_all(places);
  }

  /// A pair was formed (+1) or broken up (-1) in a word.
  void change(PairMap<std::vector<uint32_t>>& places, const Pair& pair, uint32_t word, int by) {
    counts_[pair] += by * word_counts_[word];
    if (by < 0) return;
    auto& formed = places[pair];
    if (formed.empty() || formed.back() != word) formed.push_back(word);
  }

  void push_all(PairMap<std::vector<uint32_t>>& places) {
    for (auto& [pair, words] : places) {
      const int64_t count = counts_[pair];
      if (count > 0) push(PairInWords{pair, count, std::move(words)});
    }
  }

  void push(PairInWords pair) {
    queue_.push_back(std::move(pair));
    std::push_heap(queue_.begin(), queue_.end());
  }

  PairInWords pop_most_frequent() {
    std::pop_heap(queue_.begin(), queue_.end());
    PairInWords top = std::move(queue_.back());
    queue_.pop_back();
    return top;
  }

  void merge(const PairInWords& top) {
    const auto text = [this](int32_t id) { return spec_.vocabulary[static_cast<std::size_t>(id)]; };
    const int32_t token = add_token(text(top.pair.first) + text(top.pair.second));
    spec_.merges.push_back({top.pair.first, top.pair.second, token});
    PairMap<std::vector<uint32_t>> places;
    for (const uint32_t word : top.words) merge_in_word(word, top.pair, token, places);
    push_all(places);
  }

  void merge_in_word(uint32_t word, const Pair& pair, int32_t token,
                     PairMap<std::vector<uint32_t>>& places) {
    auto& tokens = words_[word];
    std::size_t kept = 0;  // what stands before it is done
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool found =
          i + 1 < tokens.size() && tokens[i] == pair.first && tokens[i + 1] == pair.second;
      if (!found) {
        tokens[kept++] = tokens[i];
        continue;
      }
      if (kept > 0) {
        change(places, {tokens[kept - 1], pair.first}, word, -1);
        change(places, {tokens[kept - 1], token}, word, 1);
      }
      ++i;
      if (i + 1 < tokens.size()) {
        change(places, {pair.second, tokens[i + 1]}, word, -1);
        change(places, {token, tokens[i + 1]}, word, 1);
      }
      tokens[kept++] = token;
    }
    tokens.resize(kept);
  }

  std::size_t size_;
  BpeSpec spec_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<std::vector<int32_t>> words_;
  std::vector<int64_t> word_counts_;
  PairMap<int64_t> counts_;
  std::vector<PairInWords> queue_;  // a heap
};

}  // namespace

void WordCounts::add_text(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = word_end(text, at);
    const std::string_view word = text.substr(at, end - at);
    const auto found = counts_.find(word);
    if (found == counts_.end()) {
      counts_.emplace(word, 1);
    } else {
      ++found->second;
    }
    at = end;
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
  return BpeTraining(words, static_cast<std::size_t>(size)).run();
}

}  // namespace ddp::train
