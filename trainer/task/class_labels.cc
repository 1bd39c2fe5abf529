#include "trainer/task/class_labels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/metrics/confusion_matrix.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"

namespace ddp::train {
namespace {

/// "-12" and "0", but not "007", which is a name.
bool is_whole_number(const std::string& text) {
  constexpr std::size_t kMostDigits = 18;
  const std::string digits = text.starts_with('-') ? text.substr(1) : text;
  return !digits.empty() && digits.size() <= kMostDigits &&
         digits.find_first_not_of("0123456789") == std::string::npos &&
         (digits == "0" || digits.front() != '0');
}

}  // namespace

std::string labels_json(const Labels& labels) { return nlohmann::json(labels).dump(); }

Labels labels_of(const std::map<std::string, std::string>& metadata) {
  try {
    return nlohmann::json::parse(metadata.at(kLabels)).get<Labels>();
  } catch (const std::exception& error) {
    throw RunError(
        fmt::format("the snapshot's labels are damaged: {}", plain_json_error(error.what())));
  }
}

Labels sorted_labels(const Labels& names) {
  const std::set<std::string> each(names.begin(), names.end());
  Labels labels(each.begin(), each.end());
  if (std::all_of(labels.begin(), labels.end(), is_whole_number)) {
    std::sort(labels.begin(), labels.end(), [](const std::string& a, const std::string& b) {
      return std::stoll(a) < std::stoll(b);
    });
  }
  return labels;
}

std::unordered_map<std::string, int64_t> numbers_of(const Labels& labels) {
  std::unordered_map<std::string, int64_t> numbers;
  const bool by_key = std::none_of(labels.begin(), labels.end(), is_whole_number);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    numbers.emplace(labels[i], static_cast<int64_t>(i));
    if (by_key) numbers.emplace(std::to_string(i), static_cast<int64_t>(i));
  }
  return numbers;
}

bool are_generic(const Labels& labels) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != fmt::format("LABEL_{}", i)) return false;
  }
  return true;
}

std::string describe_labels(const Labels& labels) {
  constexpr std::size_t kMostShown = 20;
  const Labels shown_ones(labels.begin(), labels.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                               labels.size(), kMostShown)));
  return fmt::format("Labels: {}: {}{}", labels.size(), fmt::join(shown_ones, ", "),
                     labels.size() > kMostShown ? ", ..." : "");
}

Labels confusable(const Labels& labels) {
  return labels.size() <= kMostConfusionClasses ? labels : Labels();
}

torch::Tensor confusions(const torch::Tensor& truth_B, const torch::Tensor& answers_B,
                         const Labels& labels) {
  const auto classes = static_cast<int64_t>(confusable(labels).size());
  if (classes == 0) return {};
  return (truth_B * classes + answers_B).bincount({}, classes * classes).view({classes, classes});
}

}  // namespace ddp::train
