// Numbers as people read them in a log.
#pragma once

#include <string>

namespace ddp::train {

/// 27453440 -> "27.45M", 9876.5 -> "9.88k", 12 -> "12".
std::string short_number(double value);

}  // namespace ddp::train
