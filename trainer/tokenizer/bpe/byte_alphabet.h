// GPT-2's encoding of arbitrary bytes as printable text: each byte is a distinct character.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddp::train {

/// bytes_to_unicode() of https://github.com/openai/gpt-2/blob/master/src/encoder.py: printable
/// Latin-1 stands for itself, the other 68 bytes are U+0100 onward.
std::string byte_symbol(unsigned char byte);
std::string bytes_to_symbols(std::string_view bytes);
/// Returns nullopt if a character of `text` is not the symbol of a byte.
std::optional<std::string> symbols_to_bytes(std::string_view text);

}  // namespace ddp::train
