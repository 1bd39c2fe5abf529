#include "trainer/tokenizer/bpe/pair_training.h"

#include <algorithm>

namespace ddp::train {

std::size_t PairTraining::PairHash::operator()(const Pair& pair) const {
  const uint64_t key = (static_cast<uint64_t>(static_cast<uint32_t>(pair.first)) << 32U) |
                       static_cast<uint32_t>(pair.second);
  const uint64_t mixed = key * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::size_t>(mixed ^ (mixed >> 32U));
}

int32_t PairTraining::add_token(const std::string& text) {
  const auto [at, fresh] = ids_.emplace(text, static_cast<int32_t>(vocabulary_.size()));
  if (fresh) vocabulary_.push_back(text);
  return at->second;
}

void PairTraining::add_word(std::vector<int32_t> tokens, int64_t count) {
  const auto index = static_cast<uint32_t>(words_.size());
  word_counts_.push_back(count);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
    change(places_, {tokens[i], tokens[i + 1]}, index, 1);
  words_.push_back(std::move(tokens));
}

void PairTraining::run() {
  push_all(places_);
  places_.clear();
  while (vocabulary_.size() < size_ && !queue_.empty()) {
    PairInWords top = pop_most_frequent();
    const int64_t count = counts_[top.pair];
    if (top.count != count) {
      top.count = count;
      push(std::move(top));
      continue;
    }
    if (count < fewest_) break;
    merge(top);
  }
}

/// A pair was formed (+1) or broken up (-1) in a word.
void PairTraining::change(PairMap<std::vector<uint32_t>>& places, const Pair& pair, uint32_t word,
                          int by) {
  counts_[pair] += by * word_counts_[word];
  if (by < 0) return;
  auto& formed = places[pair];
  if (formed.empty() || formed.back() != word) formed.push_back(word);
}

void PairTraining::push_all(PairMap<std::vector<uint32_t>>& places) {
  for (auto& [pair, words] : places) {
    const int64_t count = counts_[pair];
    if (count > 0) push(PairInWords{pair, count, std::move(words)});
  }
}

void PairTraining::push(PairInWords pair) {
  queue_.push_back(std::move(pair));
  std::push_heap(queue_.begin(), queue_.end());
}

PairTraining::PairInWords PairTraining::pop_most_frequent() {
  std::pop_heap(queue_.begin(), queue_.end());
  PairInWords top = std::move(queue_.back());
  queue_.pop_back();
  return top;
}

std::string PairTraining::merged_text(const Pair& pair) const {
  const std::string& left = vocabulary_[static_cast<std::size_t>(pair.first)];
  const std::string& right = vocabulary_[static_cast<std::size_t>(pair.second)];
  const bool continues = !prefix_.empty() && right.starts_with(prefix_);
  return left + (continues ? right.substr(prefix_.size()) : right);
}

void PairTraining::merge(const PairInWords& top) {
  const int32_t token = add_token(merged_text(top.pair));
  merges_.push_back({top.pair.first, top.pair.second, token});
  PairMap<std::vector<uint32_t>> places;
  for (const uint32_t word : top.words) merge_in_word(word, top.pair, token, places);
  push_all(places);
}

void PairTraining::merge_in_word(uint32_t word, const Pair& pair, int32_t token,
                                 PairMap<std::vector<uint32_t>>& places) {
  auto& tokens = words_[word];
  std::size_t kept = 0;  // what precedes it is done
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

}  // namespace ddp::train
