// One token for each byte, and one for the end of a text: for any file, in any encoding.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// Ids 0 to 255 are the bytes, 256 is the end of a text, which encode() never returns.
class ByteTokenizer : public Tokenizer {
 public:
  std::string_view kind() const override { return "byte"; }
  int64_t size() const override { return 257; }
  std::vector<int32_t> encode(std::string_view text) const override;
  /// The end of a text has no bytes.
  std::string decode(std::span<const int32_t> tokens) const override;
  using Tokenizer::decode;
  std::optional<int32_t> end_of_text() const override { return 256; }
  std::string state() const override { return "{\"kind\":\"byte\"}\n"; }
  std::size_t safe_prefix(std::string_view text) const override { return text.size(); }
};

}  // namespace ddp::train
