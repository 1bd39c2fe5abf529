#include "trainer/data/text/label_cells.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

std::string_view without_spaces(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) + 1 - first);
}

std::vector<std::string> labels_in_list(std::string_view cell) {
  const auto list = nests_too_deeply(cell, 1)
                        ? nlohmann::json()
                        : nlohmann::json::parse(cell, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) {
    throw UserError(fmt::format(
        R"(the labels {} are not a JSON list; write ["a", "b"], or a and b with a separator)",
        shown(cell)));
  }
  std::vector<std::string> labels;
  for (const auto& label : list) {
    if (label.is_null())
      throw UserError(fmt::format("the labels {} hold null; remove it", shown(cell)));
    labels.push_back(label.is_string() ? label.get<std::string>() : label.dump());
  }
  return labels;
}

std::vector<std::string> separated_labels(std::string_view cell, const std::string& separator) {
  std::vector<std::string> labels;
  for (std::size_t end = 0; end != std::string_view::npos;) {
    end = cell.find(separator);
    labels.emplace_back(without_spaces(cell.substr(0, end)));
    if (end != std::string_view::npos) cell.remove_prefix(end + separator.size());
  }
  return labels;
}

}  // namespace

std::vector<std::string> labels_in_cell(const std::string& cell, const std::string& separator) {
  const std::string_view text = without_spaces(cell);
  if (text.empty()) return {};
  auto labels = text.front() == '[' ? labels_in_list(text) : separated_labels(text, separator);
  std::set<std::string_view> seen;
  for (const std::string& label : labels) {
    if (label.empty()) throw UserError(fmt::format("one of the labels {} is empty", shown(cell)));
    if (seen.insert(label).second) continue;
    throw UserError(fmt::format(
        "the labels {} name {} twice; list the names of a text's labels, not 0 or 1 for each",
        shown(cell), shown(label)));
  }
  return labels;
}

float number_in_cell(const std::string& cell) {
  const std::string_view text = without_spaces(cell);
  float number = 0.0F;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc{} && end == text.data() + text.size() && std::isfinite(number))
    return number;
  throw UserError(fmt::format("the label {} is not a number", shown(cell)));
}

}  // namespace ddp::train
