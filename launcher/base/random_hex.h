// Unique names.
#pragma once

#include <string>

namespace ddp::launch {

/// 64 random bits as 16 hexadecimal digits.
std::string random_sixteen_digits();

}  // namespace ddp::launch
