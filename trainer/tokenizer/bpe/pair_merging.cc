#include "trainer/tokenizer/bpe/pair_merging.h"

#include <functional>
#include <queue>
#include <utility>

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

void merge_short(const MergeTable& table, BpeScratch& scratch) {
  auto& tokens = scratch.tokens;
  auto& pairs = scratch.merges;  // pairs[i]: of tokens i and i + 1
  pairs.clear();
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
    pairs.push_back(table.find(tokens[i], tokens[i + 1]));
  while (!pairs.empty()) {
    const auto best = std::min_element(pairs.begin(), pairs.end());
    if (*best == kNoMerge) return;
    const auto at = best - pairs.begin();
    tokens[static_cast<std::size_t>(at)] = merged_token(*best);
    tokens.erase(tokens.begin() + at + 1);
    pairs.erase(best);
    const auto i = static_cast<std::size_t>(at);
    if (i > 0) pairs[i - 1] = table.find(tokens[i - 1], tokens[i]);
    if (i < pairs.size()) pairs[i] = table.find(tokens[i], tokens[i + 1]);
  }
}

}  // namespace

void merge_pairs(const MergeTable& merges, BpeScratch& scratch) {
  if (scratch.tokens.size() <= kShortWord) return merge_short(merges, scratch);
  LongWord word(merges, scratch.tokens);
  word.merge_all();
  word.copy_to(scratch.tokens);
}

}  // namespace ddp::train
