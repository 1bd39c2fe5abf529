#include "launcher/cli/option_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/cli/declare_option.h"
#include "launcher/cli/option_table.h"

namespace ddp::launch {
void value_error(const char* name, const std::string& value, const std::string& expected) {
  usage_error(fmt::format("--{}={}: {}must be {}", name, value,
                          value.empty() ? "is empty (an unset variable?); " : "", expected));
}

OptionValues::OptionValues(const RawOptions& raw) {
  cxxopts::Options parser("ddp-run");
  for (const OptionSpec& option : option_table()) {
    const auto found = raw.defaults.find(option.name);
    if (found != raw.defaults.end()) given_.insert(option.name);
    declare_option(parser, option,
                   found != raw.defaults.end() ? found->second.value : option.fallback);
    values_[option.name];
  }
  std::vector<const char*> argv{"ddp-run"};
  for (const std::string& word : raw.words) argv.push_back(word.c_str());
  const auto result = parser.parse(static_cast<int>(argv.size()), argv.data());
  for (const auto& unset : result.defaults()) values_[unset.key()] = unset.value();
  for (const auto& argument : result.arguments()) {
    values_[argument.key()] = argument.value();
    on_command_line_.insert(argument.key());
  }
  given_.insert(on_command_line_.begin(), on_command_line_.end());
  program_ = result.unmatched();
}

int OptionValues::integer(const char* name, int low, int high) const {
  const std::string value = trimmed(text(name));
  const auto number = whole_number(value);
  if (!number || *number < low || *number > high)
    value_error(name, value, fmt::format("an integer from {} to {}", low, high));
  return *number;
}

const std::string& OptionValues::file(const char* name) const {
  if (given(name) && text(name).empty()) {
    usage_error(fmt::format("--{}=: is empty; give a file or omit the option", name));
  }
  return text(name);
}

double OptionValues::seconds(const char* name) const {
  const std::string value = trimmed(text(name));
  const auto number = number_in<double>(value);
  if (!number || !(*number >= 0) || *number > 1e9)
    value_error(name, value, "a number of seconds, e.g. 0, 2.5 or 600");
  return *number;
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
