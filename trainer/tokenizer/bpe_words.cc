#include "trainer/tokenizer/bpe_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/word_splitter.h"

namespace ddp::train {
namespace {

constexpr std::size_t kShortWord = 64;  // up to here, looking at all pairs is faster than a heap

/// Tokens of a long word as a list, whose pairs a heap hands out by rank, then place.
class LongWord {
 public:
  LongWord(const MergeTable& merges, const std::vector<int32_t>& tokens)
      : merges_(merges), tokens_(tokens), next_(tokens.size()), previous_(tokens.size()) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      next_[i] = i + 1;
      previous_[i] = i - 1;  // of the first: never asked for
    }
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) push_pair(i);
  }

  void merge_all() {
    while (!heap_.empty()) {
      const auto [merge, at] = heap_.top();
      heap_.pop();
      if (tokens_[at] != kGone && pair_at(at) == merge) merge_at(at, merged_token(merge));
    }
  }

  void copy_to(std::vector<int32_t>& tokens) const {
    tokens.clear();
    for (const int32_t token : tokens_) {
      if (token != kGone) tokens.push_back(token);
    }
  }

 private:
  static constexpr int32_t kGone = -1;
  using Candidate = std::pair<RankedMerge, std::size_t>;

  RankedMerge pair_at(std::size_t at) const {
    return next_[at] == tokens_.size() ? kNoMerge : merges_.find(tokens_[at], tokens_[next_[at]]);
  }

  void push_pair(std::size_t at) {
    const RankedMerge merge = pair_at(at);
    if (merge != kNoMerge) heap_.emplace(merge, at);
  }

  void merge_at(std::size_t at, int32_t token) {
    const std::size_t right = next_[at];
    tokens_[at] = token;
    tokens_[right] = kGone;
    next_[at] = next_[right];
    if (next_[at] != tokens_.size()) previous_[next_[at]] = at;
    if (at != 0) push_pair(previous_[at]);
    push_pair(at);
  }

  const MergeTable& merges_;
  std::vector<int32_t> tokens_;
  std::vector<std::size_t> next_;
  std::vector<std::size_t> previous_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap_;
};

}  // namespace

BpeWords::BpeWords(const BpeSpec& spec) : merges_(spec.merges) {
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
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = word_end(text, at);
    const std::size_t bytes = end - at;
    const std::size_t before = out.size();
    if (bytes > WordCache::kMostBytes) {
      encode_word(text.substr(at, bytes), scratch, out);
      at = end;
      continue;
    }
    const WordCache::Key key = WordCache::key_of(text, at, bytes);
    WordCache::Slot& slot = scratch.cache.slot(key);
    if (slot.key == key) {
      out.insert(out.end(), slot.tokens.begin(), slot.tokens.end());
      out.resize(before + slot.count());
    } else {
      encode_word(text.substr(at, bytes), scratch, out);
      const std::size_t count = out.size() - before;
      if (count <= WordCache::kMostTokens) {
        slot = {key, {-1, -1, -1, -1}};
        std::copy_n(out.end() - static_cast<std::ptrdiff_t>(count), count, slot.tokens.begin());
      }
    }
    at = end;
  }
}

void BpeWords::encode_word(std::string_view word, BpeScratch& scratch,
                           std::vector<int32_t>& out) const {
  if (!whole_words_.empty()) {
    const auto whole = whole_words_.find(std::string(word));
    if (whole != whole_words_.end()) return out.push_back(whole->second);
  }
  split_to_bytes(word, scratch.tokens);
  if (word.size() <= kShortWord) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
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

void BpeWords::merge_short(BpeScratch& scratch) const {
  auto& tokens = scratch.tokens;
  auto& pairs = scratch.merges;  // pairs[i]: of tokens i and i + 1
  pairs.clear();
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
    pairs.push_back(merges_.find(tokens[i], tokens[i + 1]));
  while (!pairs.empty()) {
    const auto best = std::min_element(pairs.begin(), pairs.end());
    if (*best == kNoMerge) return;
    const auto at = best - pairs.begin();
    tokens[static_cast<std::size_t>(at)] = merged_token(*best);
    tokens.erase(tokens.begin() + at + 1);
    pairs.erase(best);
    const auto i = static_cast<std::size_t>(at);
    if (i > 0) pairs[i - 1] = merges_.find(tokens[i - 1], tokens[i]);
    if (i < pairs.size()) pairs[i] = merges_.find(tokens[i], tokens[i + 1]);
  }
}

void BpeWords::merge_long(BpeScratch& scratch) const {
  LongWord word(merges_, scratch.tokens);
  word.merge_all();
  word.copy_to(scratch.tokens);
}

}  // namespace ddp::train
