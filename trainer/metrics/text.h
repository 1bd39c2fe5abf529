// Human-readable numbers for logs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::train {

/// 27453440 -> "27.45M", 9876.5 -> "9.88k", 12 -> "12".
std::string short_number(double value);

/// 1250000000 -> "1.25GB"
std::string in_bytes(int64_t bytes);

/// 1, "rank" -> "1 rank"; 2, "epoch" -> "2 epochs"; 2, "batch" -> "2 batches".
std::string counted(int64_t count, std::string_view word);

}  // namespace ddp::train
