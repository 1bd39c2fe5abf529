#include "trainer/metrics/confusion_matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "trainer/metrics/text.h"

namespace ddp::train {
namespace {

using ConfusionJson = nlohmann::ordered_json;

/// How often the class was predicted as another one, or another one as this class.
int64_t mistakes(const ConfusionMatrix& matrix, std::size_t k) {
  const ClassCounts counts = matrix.of_class(k);
  return static_cast<int64_t>(counts.actual + counts.answered - 2 * counts.right);
}

/// The classes with the most mistakes, in their original order.
std::vector<std::size_t> most_mistaken(const ConfusionMatrix& matrix, std::size_t most) {
  std::vector<std::size_t> classes(matrix.size());
  std::iota(classes.begin(), classes.end(), 0);
  std::vector<int64_t> wrong;
  for (const std::size_t k : classes) wrong.push_back(mistakes(matrix, k));
  std::stable_sort(classes.begin(), classes.end(),
                   [&wrong](std::size_t a, std::size_t b) { return wrong[a] > wrong[b]; });
  classes.resize(most);
  std::sort(classes.begin(), classes.end());
  return classes;
}

/// Characters of UTF-8, cut after the twelfth.
std::string brief(const std::string& name) {
  constexpr std::size_t kMostCharacters = 12;
  std::size_t characters = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool begins = (static_cast<uint8_t>(name[i]) & 0xC0U) != 0x80U;
    if (begins && ++characters > kMostCharacters) return name.substr(0, i);
  }
  return name;
}

}  // namespace

ClassCounts ConfusionMatrix::of_class(std::size_t k) const {
  ClassCounts sums;
  sums.right = static_cast<double>(at(k, k));
  for (std::size_t other = 0; other < size(); ++other) {
    sums.actual += static_cast<double>(at(k, other));
    sums.answered += static_cast<double>(at(other, k));
  }
  return sums;
}

ConfusionMatrix abbreviated(const ConfusionMatrix& matrix, std::size_t most) {
  if (matrix.size() <= most) return matrix;
  const auto shown_ones = most_mistaken(matrix, most - 1);
  std::vector<std::size_t> place(matrix.size(), most - 1);
  ConfusionMatrix result;
  for (std::size_t i = 0; i < shown_ones.size(); ++i) {
    place[shown_ones[i]] = i;
    result.labels.push_back(matrix.labels[shown_ones[i]]);
  }
  result.labels.push_back(counted(static_cast<int64_t>(matrix.size() - most + 1), "other"));
  result.counts.assign(most * most, 0);
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    for (std::size_t k = 0; k < matrix.size(); ++k)
      result.counts[place[i] * most + place[k]] += matrix.at(i, k);
  }
  return result;
}

std::string confusion_table(const ConfusionMatrix& matrix) {
  constexpr std::string_view kCorner = "true \\ said", kPrecision = "precision";
  const int64_t largest = *std::max_element(matrix.counts.begin(), matrix.counts.end());
  std::size_t first = kCorner.size(),
              width = std::max<std::size_t>(6, fmt::to_string(largest).size());
  for (const auto& label : matrix.labels) {
    first = std::max(first, brief(label).size());
    width = std::max(width, brief(label).size());
  }
  std::string text = fmt::format("{:<{}}", kCorner, first);
  std::string precision = fmt::format("{:<{}}", kPrecision, first);
  for (const auto& label : matrix.labels) text += fmt::format(" {:>{}}", brief(label), width);
  text += "  recall\n";
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    text += fmt::format("{:<{}}", brief(matrix.labels[i]), first);
    for (std::size_t k = 0; k < matrix.size(); ++k)
      text += fmt::format(" {:>{}}", matrix.at(i, k), width);
    const ClassScores scores = scores_of(matrix.of_class(i));
    text += fmt::format("  {:.4f}\n", scores.recall);
    precision += fmt::format(" {:>{}.4f}", scores.precision, width);
  }
  return text + precision + "\n";
}

std::string confusion_members(const ConfusionMatrix& matrix) {
  const auto labels =
      ConfusionJson(matrix.labels).dump(-1, ' ', false, ConfusionJson::error_handler_t::replace);
  std::string rows;
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    const auto row = matrix.counts.begin() + static_cast<std::ptrdiff_t>(i * matrix.size());
    rows += fmt::format("{}[{}]", i == 0 ? "" : ",",
                        fmt::join(row, row + static_cast<std::ptrdiff_t>(matrix.size()), ","));
  }
  return fmt::format(R"("labels":{},"counts":[{}])", labels, rows);
}

ConfusionMatrix confusion_in(const std::string& json_line) {
  const auto line = ConfusionJson::parse(json_line, nullptr, false);
  try {
    ConfusionMatrix matrix{line.at("labels").get<std::vector<std::string>>(), {}};
    for (const auto& row : line.at("counts")) {
      const auto counts = row.get<std::vector<int64_t>>();
      if (counts.size() != matrix.size()) return {};
      matrix.counts.insert(matrix.counts.end(), counts.begin(), counts.end());
    }
    const bool fits = matrix.counts.size() == matrix.size() * matrix.size();
    return fits && matrix.size() <= kMostConfusionClasses ? matrix : ConfusionMatrix();
  } catch (const ConfusionJson::exception&) {
    return {};
  }
}

}  // namespace ddp::train
