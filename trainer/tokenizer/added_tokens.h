// Texts that are one token wherever they stand.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "trainer/tokenizer/bpe_spec.h"

namespace ddp::train {

/// Finds added tokens as `tokenizers` does: the leftmost, of several there the longest; those that
/// are `normalized` in what the others leave. Most vocabularies have one, so that no automaton is
/// built.
class AddedTokens {
 public:
  explicit AddedTokens(const std::vector<AddedToken>& tokens);

  using OnText = std::function<void(std::string_view)>;
  using OnToken = std::function<void(int32_t)>;
  /// Calls back in order for each token, and for each text (not empty) between.
  void split(std::string_view text, const OnText& on_text, const OnToken& on_token) const;

  /// Whether one of them could lie across `at`.
  bool lies_across(std::string_view text, std::size_t at) const;
  std::size_t longest() const;

 private:
  class Finder {
   public:
    void add(const AddedToken& token);
    bool empty() const { return tokens_.empty(); }
    struct Found {
      std::size_t at = 0;
      const AddedToken* token = nullptr;
    };
    std::optional<Found> find(std::string_view text) const;
    const std::vector<AddedToken>& tokens() const { return tokens_; }

   private:
    std::size_t next_start(std::string_view text, std::size_t at) const;

    std::vector<AddedToken> tokens_;  // the longest first
    std::array<bool, 256> first_bytes_{};
  };
  static void split_by(const Finder& finder, std::string_view text, const OnText& on_text,
                       const OnToken& on_token);

  Finder first_;
  Finder second_;
};

}  // namespace ddp::train
