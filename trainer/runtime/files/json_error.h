// Rewords errors of the JSON library, which contain an exception type and a number.
#pragma once

#include <string>
#include <string_view>

namespace ddp::train {

/// "[json.exception.type_error.302] type must be number, but is string" becomes "a value is of type
/// string, not number"; any other text is returned unchanged.
std::string plain_json_error(std::string_view text);

}  // namespace ddp::train
