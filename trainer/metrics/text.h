// Numbers as people read them in a log.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::train {

/// 27453440 -> "27.45M", 9876.5 -> "9.88k", 12 -> "12".
std::string short_number(double value);

/// The number of epochs, or "unlimited".
std::string epochs_text(int64_t max_epochs);

}  // namespace ddp::train
