// Unicode's normalization form C.
#pragma once

#include <string>
#include <string_view>

namespace ddp::train {

/// Whether nfc() certainly leaves `text` unchanged, judging by its bytes alone.
bool is_surely_nfc(std::string_view text);

/// Bytes that are not valid UTF-8 stay in place.
std::string nfc(std::string_view text);

}  // namespace ddp::train
