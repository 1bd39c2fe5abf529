#include "trainer/app/arguments/parsed_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

/// A finite number, or nothing.
std::optional<double> finite_number(const std::string& text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

}  // namespace

Parsed::Parsed(const Words& words, const std::string& page, std::string command)
    : help_(std::move(command)), declared_("trainer") {
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) declare(line);
  // A mode with a configuration takes Hydra's ways to name it as well.
  const bool named = values_.contains("--config") && !values_.contains("--config_name");
  if (named) declare("config_name", "NAME", "");
  if (named) declare("config_path", "DIR", "");
  if (named) declare("config_dir", "DIR", "");
  declared_.allow_unrecognised_options();
  const Words spelled = in_one_spelling(words);
  check_values(spelled);
  std::vector<const char*> argv = {"trainer"};
  for (const std::string& word : spelled) argv.push_back(word.c_str());
  result_ = declared_.parse(static_cast<int>(argv.size()), argv.data());
  rest_ = result_.unmatched();
  const bool cut = std::find(words.begin(), words.end(), "--") != words.end();
  for (const std::string& word : rest_) {
    if (word.size() > 1 && word.starts_with('-')) fail_unknown(word, cut);
  }
}

Words Parsed::texts(const std::string& name) const {
  Words found;
  for (const auto& argument : result_.arguments()) {
    if (argument.key() == name) found.push_back(argument.value());
  }
  return found;
}

void Parsed::declare(const std::string& line) {
  const std::size_t begin = line.find("--");
  const std::size_t first = line.find_first_not_of(' ');
  const bool short_too = first == 2 && line.substr(2, begin - 2).ends_with(", ");
  if (begin == std::string::npos || (begin != 6 && !short_too)) return;
  const std::size_t end = std::min(line.find(' ', begin), line.size());
  const std::string value = line.substr(std::min(end + 1, line.size()));
  std::string name = line.substr(begin + 2, end - begin - 2);
  std::replace(name.begin(), name.end(), '-', '_');
  declare(name, value.substr(0, value.find_first_of(" |")),
          begin == 6 && short_too ? line.substr(3, 1) : "");
}

void Parsed::declare(const std::string& name, const std::string& value, const std::string& letter) {
  names_.push_back(name);
  values_["--" + name] = value;
  if (!letter.empty()) values_["-" + letter] = value;
  declared_.add_options()(letter.empty() ? name : letter + "," + name, "",
                          value.empty() ? cxxopts::value<bool>() : cxxopts::value<std::string>());
}

/// --max-new-tokens=5 -> --max_new_tokens=5, and Hydra's -cn, which cxxopts would take for -c n.
Words Parsed::in_one_spelling(Words words) const {
  for (std::string& word : words) {
    const std::size_t end = std::min(word.find('='), word.size());
    std::string name = word.substr(0, end);
    if (name == "-cn" || name == "-cp" || name == "-cd")
      name = name == "-cn" ? "--config_name" : name == "-cp" ? "--config_path" : "--config_dir";
    if (!name.starts_with("--")) continue;
    std::replace(name.begin() + 2, name.end(), '-', '_');
    if (std::find(names_.begin(), names_.end(), name.substr(2)) != names_.end())
      word.replace(0, end, name);
  }
  return words;
}

/// A flag with a value, or an option without one: cxxopts ignores the first.
void Parsed::check_values(const Words& words) const {
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const std::size_t equal = words[i].find('=');
    const std::string name = words[i].substr(0, equal);
    const auto found = values_.find(name);
    if (found == values_.end()) continue;
    const bool given = equal != std::string::npos;
    const std::string& value = found->second;
    if (value.empty() && given)
      throw UserError(fmt::format("{0}: takes no value, got '{1}'; write {0} alone", name,
                                  words[i].substr(equal + 1)));
    if (value.empty() || given) continue;
    if (++i == words.size())
      throw UserError(
          fmt::format("{0}: needs a value; write {0} {1}, see {2}", name, value, help_));
  }
}

void Parsed::fail_unknown(const std::string& word, bool after_dashes) const {
  const std::string option = word.substr(0, word.find('='));
  std::string name = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  if (after_dashes)
    throw UserError(fmt::format("{}: only KEY=VALUE may follow --; put options before it", option));
  if (name.find('.') != std::string::npos) {
    const bool valued = option.size() < word.size();
    throw UserError(fmt::format("{}: not an option; to override a key, write {}{}", option, name,
                                valued ? word.substr(option.size()) : "=VALUE"));
  }
  std::replace(name.begin(), name.end(), '-', '_');
  throw UserError(fmt::format("{}: no such option; {}", option,
                              did_you_mean(name, names_, "see " + help_, "--")));
}

int64_t Parsed::whole_number(const std::string& name, int64_t low) const {
  const std::string given = text(name);
  int64_t value = 0;
  const auto result = std::from_chars(given.data(), given.data() + given.size(), value);
  if (result.ec != std::errc() || result.ptr != given.data() + given.size() || value < low) {
    throw UserError(fmt::format("--{}: '{}' is not an integer >= {}; e.g. --{} {}", name, given,
                                low, name, std::max<int64_t>(low, 100)));
  }
  return value;
}

double Parsed::positive_number(const std::string& name) const {
  const auto value = finite_number(text(name));
  if (value && *value > 0) return *value;
  throw UserError(
      fmt::format("--{}: '{}' is not a number > 0; e.g. --{} 0.8", name, text(name), name));
}

double Parsed::number_from_0(const std::string& name) const {
  const auto value = finite_number(text(name));
  if (value && *value >= 0) return *value;
  throw UserError(
      fmt::format("--{}: '{}' is not a number >= 0; e.g. --{} 0.8", name, text(name), name));
}

double Parsed::share(const std::string& name, bool zero) const {
  const auto value = finite_number(text(name));
  if (value && *value <= 1 && (*value > 0 || (zero && *value == 0))) return *value;
  throw UserError(fmt::format("--{}: '{}' is not a number {} 0 and <= 1; e.g. --{} {}", name,
                              text(name), zero ? ">=" : ">", name, zero ? "0.05" : "0.9"));
}

std::size_t Parsed::choice(const std::string& name, const Words& words) const {
  const auto found = std::find(words.begin(), words.end(), text(name));
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  throw UserError(fmt::format("--{}: '{}' is not one of {}; {}", name, text(name),
                              fmt::join(words, ", "),
                              did_you_mean(text(name), words, "choose one")));
}

void Parsed::require(const Words& names) const {
  for (const std::string& name : names) {
    if (!has(name)) throw UserError(fmt::format("--{}: is required; see {}", name, help_));
  }
}

void Parsed::refuse_rest(std::size_t allowed) const {
  if (rest_.size() > allowed)
    throw UserError(fmt::format("{}: unexpected argument; see {}", rest_[allowed], help_));
}

}  // namespace ddp::train
