// Numbers as Python reads them from text, holds them and compares them.
#pragma once

#include <compare>
#include <optional>
#include <string_view>

#include "trainer/config/tree.h"

namespace ddp::train {

/// int("  -1_000 ", base): digits of any script, single underscores between them, spaces around, a
/// prefix 0b, 0o or 0x where the base is 2, 8 or 16; any size up to Python's own limit.
std::optional<Node> python_int(std::string_view raw, unsigned base = 10);

/// float("1e-3"), also inf, infinity and nan.
std::optional<double> python_float_from(std::string_view raw);

/// int(value) of a finite float: without its fraction, exact.
Node int_of_float(double value);

/// a * 60 + b; nullopt where a part beyond int64 is in it and it is not a plain sum of positive
/// ones.
std::optional<Node> sixty_times(const Node& a, const Node& b);

/// Whether the node is a bool, an int or a float.
bool is_number(const Node& node);

/// Two numbers as Python compares them: exactly, whatever their size and kind.
std::partial_ordering compare_numbers(const Node& a, const Node& b);

/// ==: 1, 1.0 and True are equal, maps without regard to order.
bool python_equal(const Node& a, const Node& b);

/// <. Throws std::invalid_argument for values that Python cannot compare.
bool python_less(const Node& a, const Node& b);

}  // namespace ddp::train
