// Numbers as Python's int() and float() read them from text.
#pragma once

#include <optional>
#include <string_view>

#include "trainer/config/tree.h"

namespace ddp::train {

/// int("  -1_000 "): decimal digits, single underscores between them, spaces around; any size.
std::optional<Node> python_int(std::string_view raw);

/// float("1e-3"), also inf, infinity and nan.
std::optional<double> python_float_from(std::string_view raw);

}  // namespace ddp::train
