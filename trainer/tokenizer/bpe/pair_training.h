// The training loop of byte-pair encodings and wordpieces: the most frequent pair of neighbours
// repeatedly becomes a new token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trainer/tokenizer/bpe/bpe_spec.h"

namespace ddp::train {

/// Holds every word as its current tokens.
class PairTraining {
 public:
  /// `prefix`: in front of tokens that continue a word; a token that is merged to another one's end
  /// loses it. Pairs with fewer than `fewest` occurrences do not become tokens.
  PairTraining(std::size_t size, std::string prefix, int64_t fewest)
      : size_(size), prefix_(std::move(prefix)), fewest_(fewest) {}

  /// The id of a token, new or known.
  int32_t add_token(const std::string& text);
  /// Adds a word of known tokens that occurs `count` times in the text.
  void add_word(std::vector<int32_t> tokens, int64_t count);
  /// Merges until the vocabulary has its size or no pair is left. Among pairs with equal counts,
  /// the one with smaller ids comes first.
  void run();

  std::vector<std::string>& vocabulary() { return vocabulary_; }
  std::vector<Merge>& merges() { return merges_; }

 private:
  using Pair = std::pair<int32_t, int32_t>;
  struct PairHash {
    std::size_t operator()(const Pair& pair) const;
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

  void change(PairMap<std::vector<uint32_t>>& places, const Pair& pair, uint32_t word, int by);
  void push_all(PairMap<std::vector<uint32_t>>& places);
  void push(PairInWords pair);
  PairInWords pop_most_frequent();
  std::string merged_text(const Pair& pair) const;
  void merge(const PairInWords& top);
  void merge_in_word(uint32_t word, const Pair& pair, int32_t token,
                     PairMap<std::vector<uint32_t>>& places);

  std::size_t size_;
  std::string prefix_;
  int64_t fewest_;
  std::vector<std::string> vocabulary_;
  std::vector<Merge> merges_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<std::vector<int32_t>> words_;
  std::vector<int64_t> word_counts_;
  PairMap<int64_t> counts_;
  PairMap<std::vector<uint32_t>> places_;  ///< Words in which each pair occurs.
  std::vector<PairInWords> queue_;         ///< A heap.
};

}  // namespace ddp::train
