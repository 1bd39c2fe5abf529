#include "launcher/cli/option_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <cxxopts.hpp>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/cli/option_table.h"

namespace ddp::launch {
namespace {

cxxopts::ParseResult parse_options(const std::vector<std::string>& options) {
  cxxopts::Options parser("ddp-run");
  for (const auto& option : option_table()) {
    if (option.value) {
      parser.add_options()(option.name, "",
                           cxxopts::value<std::string>()->default_value(option.fallback));
    } else {
      parser.add_options()(option.name, "", cxxopts::value<bool>()->default_value("false"));
    }
  }
  std::vector<const char*> argv{"ddp-run"};
  for (const auto& option : options) argv.push_back(option.c_str());
  return parser.parse(static_cast<int>(argv.size()), argv.data());
}

}  // namespace

void value_error(const char* name, const std::string& value, const std::string& expected) {
  usage_error(fmt::format("--{}={}: {}must be {}", name, value,
                          value.empty() ? "is empty (an unset variable?); " : "", expected));
}

OptionValues::OptionValues(const std::vector<std::string>& options) {
  const cxxopts::ParseResult result = parse_options(options);
  for (const auto& option : option_table()) {
    values_[option.name] = option.value                     ? result[option.name].as<std::string>()
                           : result[option.name].as<bool>() ? "true"
                                                            : "false";
    if (result.count(option.name) > 0) given_.insert(option.name);
  }
}

int OptionValues::integer(const char* name, int low, int high) const {
  const std::string value = trimmed(text(name));
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size() || number < low || number > high) {
    value_error(name, value, fmt::format("an integer from {} to {}", low, high));
  }
  return number;
}

const std::string& OptionValues::file(const char* name) const {
  if (given(name) && text(name).empty()) {
    usage_error(fmt::format("--{}=: is empty; give a file or omit the option", name));
  }
  return text(name);
}

double OptionValues::seconds(const char* name) const {
  const std::string value = trimmed(text(name));
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size() || !(number >= 0) ||
      number > 1e9) {
    value_error(name, value, "a number of seconds, e.g. 0, 2.5 or 600");
  }
  return number;
}

std::chrono::milliseconds OptionValues::milliseconds(const char* name) const {
  const double value = seconds(name);
  const long long least = value > 0 ? 1 : 0;  // 0 has another meaning
  return std::chrono::milliseconds(std::max(least, std::llround(value * 1000)));
}

std::string OptionValues::one_of(const char* name, const std::vector<std::string>& choices) const {
  const std::string value = text(name);
  if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
    value_error(name, value, fmt::format("one of {}", fmt::join(choices, ", ")));
  }
  return value;
}

}  // namespace ddp::launch
