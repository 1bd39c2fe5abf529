#include "trainer/tokenizer/bpe/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "trainer/runtime/utf8.h"

namespace ddp::train {
namespace {

constexpr std::size_t kSymbols = 256 + 68;  // one past the highest code point in use

constexpr bool stands_for_itself(unsigned c) {
  return (c >= '!' && c <= '~') || (c >= 0xA1 && c <= 0xAC) || c >= 0xAE;
}

constexpr auto kSymbolOfByte = [] {
  std::array<uint16_t, 256> symbols{};
  unsigned next = 256;
  for (unsigned c = 0; c < 256; ++c)
    symbols[c] = static_cast<uint16_t>(stands_for_itself(c) ? c : next++);
  return symbols;
}();

constexpr auto kByteOfSymbol = [] {
  std::array<int16_t, kSymbols> bytes{};
  for (auto& byte : bytes) byte = -1;
  for (unsigned c = 0; c < 256; ++c) bytes[kSymbolOfByte[c]] = static_cast<int16_t>(c);
  return bytes;
}();

}  // namespace

std::string byte_symbol(unsigned char byte) {
  const unsigned symbol = kSymbolOfByte[byte];
  if (symbol < 0x80) return {static_cast<char>(symbol)};
  return {static_cast<char>(0xC0U | (symbol >> 6U)), static_cast<char>(0x80U | (symbol & 0x3FU))};
}

std::string bytes_to_symbols(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += byte_symbol(static_cast<unsigned char>(byte));
  return text;
}

std::optional<std::string> symbols_to_bytes(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (point.bytes == 0 || point.value >= kSymbols || kByteOfSymbol[point.value] < 0)
      return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOfSymbol[point.value]));
    at += point.bytes;
  }
  return bytes;
}

}  // namespace ddp::train
