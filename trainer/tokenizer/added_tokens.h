// Texts that are one token wherever they occur.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/tokenizer/bpe/bpe_spec.h"

namespace ddp::train {

/// Finds added tokens as `tokenizers` does: the leftmost, among several there the longest;
/// `normalized` ones in the normalized text between the others.
class AddedTokens {
 public:
  /// Null: text stays unchanged.
  using Normalize = std::function<std::string(std::string_view)>;
  explicit AddedTokens(const std::vector<AddedToken>& tokens, Normalize normalize = nullptr);

  /// `first`: nothing precedes the text.
  using OnText = std::function<void(std::string_view text, bool first)>;
  using OnToken = std::function<void(int32_t)>;
  /// Calls back in order for each token, and for each normalized text (not empty) between.
  void split(std::string_view text, const OnText& on_text, const OnToken& on_token) const;

  /// Whether these tokens permit cutting `text` at `at`: none of them could span it, or take white
  /// space after it.
  bool may_cut(std::string_view text, std::size_t at) const;
  std::size_t longest() const;

 private:
  class Finder {
   public:
    explicit Finder(std::vector<AddedToken> tokens);
    bool empty() const { return tokens_.empty(); }
    struct Found {
      std::size_t at = 0;
      const AddedToken* token = nullptr;
    };
    std::optional<Found> find(std::string_view text) const;
    /// The longest that `text` begins with; null: none.
    const AddedToken* first_of(std::string_view text) const;
    std::size_t longest() const { return longest_; }
    bool strips_after() const { return strips_after_; }

   private:
    std::size_t next_start(std::string_view text, std::size_t at) const;

    std::vector<AddedToken> tokens_;  // by content
    std::array<bool, 256> first_bytes_{};
    std::size_t longest_ = 0;
    bool strips_after_ = false;
  };
  static void split_by(const Finder& finder, std::string_view text, bool first,
                       const OnText& on_text, const OnToken& on_token);

  Normalize normalize_;
  Finder first_;
  Finder second_;
};

}  // namespace ddp::train
