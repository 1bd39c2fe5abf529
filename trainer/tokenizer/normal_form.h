// Unicode's normalization form C.
#pragma once

#include <string>
#include <string_view>

namespace ddp::train {

/// Whether nfc() leaves `text` as it is, by a look at its bytes alone: false when it may not.
bool is_surely_nfc(std::string_view text);

/// Bytes that are not valid UTF-8 stay where they are.
std::string nfc(std::string_view text);

}  // namespace ddp::train
