// Python's parsing and comparison of numbers.
#pragma once

#include <charconv>
#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

std::string ascii_lower(std::string_view text);

/// Parses a text of digits only; nullopt for anything else, and for numbers that do not fit into T.
template <class T>
std::optional<T> whole_number(std::string_view digits, int base = 10) {
  T value = 0;
  const char* const end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value, base);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

/// int(" -1_000 "): single underscores between digits, spaces around. nullopt beyond 64 bits, too.
std::optional<int64_t> python_int(std::string_view text);

/// float("1e-3"), also inf, infinity and nan.
std::optional<double> python_float_from(std::string_view text);

/// int(value) of a float: without its fraction; nullopt beyond 64 bits.
std::optional<int64_t> int_of_float(double value);

/// A bool as OmegaConf accepts it: also an integer, and yes, no, on, off, y and n in any case.
std::optional<bool> lenient_bool(const Node& node);

/// Whether the node is a bool, an int or a float.
bool is_number(const Node& node);

/// The value of a bool, an int or a float.
double number_of(const Node& number);
/// A float has 53 bits, an int 63: long double holds both.
long double exact_number(const Node& number);

/// Two numbers, exactly, whatever their kinds.
std::partial_ordering compare_numbers(const Node& a, const Node& b);

/// ==: 1, 1.0 and True are equal, maps without regard to order.
bool python_equal(const Node& a, const Node& b);

/// < of numbers, texts and lists. Throws std::invalid_argument for values without an order.
bool python_less(const Node& a, const Node& b);

}  // namespace ddp::train
