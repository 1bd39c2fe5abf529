#include "trainer/tokenizer/byte_tokenizer.h"

namespace ddp::train {

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    if (token < 256) text.push_back(static_cast<char>(token));
  }
  return text;
}

}  // namespace ddp::train
