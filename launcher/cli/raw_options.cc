#include "launcher/cli/raw_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <numeric>
#include <string_view>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/other_launchers.h"

namespace ddp::launch {
namespace {

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return lowercase(std::move(name));
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// The candidate closest to `word`; empty: none is close.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongest = 64;  // longer words are not typing errors
  if (word.size() < 2 || word.size() > kLongest) return "";
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const bool begins = candidate.compare(0, word.size(), word) == 0;
    const std::size_t distance = begins ? 1 : edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string nearest_option(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& option : listed_options()) names.emplace_back(option.name);
  return nearest(with_dashes(name), names);
}

std::string pet_name(const OptionSpec& option) {
  std::string name = "PET_";
  for (const char* c = option.name; *c; ++c) {
    name += *c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
  }
  return name;
}

// A flag's variable; torchrun accepts numbers only.
bool is_on(const std::string& name, const std::string& value) {
  if (const auto number = whole_number(value)) return *number != 0;
  const std::string word = with_dashes(value);
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off" || word.empty()) return false;
  usage_error(fmt::format("{}={}: must be 1 or 0", name, value));
}

void take_variable(RawOptions& raw, const std::string& name, const std::string& value) {
  const OptionSpec* option = find_option(with_dashes(name.substr(4)));
  if (option && option->group == OptionGroup::kOther) {
    raw.hints.push_back(
        fmt::format("{} is ignored; give --{} on the command line", name, option->name));
  } else if (!option || pet_name(*option) != name) {
    const std::string near = nearest_option(name.substr(4));
    const OptionSpec* meant = near.empty() ? nullptr : find_option(near);
    raw.hints.push_back(fmt::format("{} is ignored: no such option{}", name,
                                    meant ? "; did you mean " + pet_name(*meant) + "?" : ""));
  } else if (option->value) {
    raw.defaults[option->name] = {value, name};
  } else if (is_on(name, value)) {
    raw.defaults[option->name] = {"true", name};
  }
}

// torchrun's older variables; the option and its PET_ variable take precedence.
void take_environment(RawOptions& raw, const Environment& environment) {
  for (const auto& [variable, option] :
       {std::pair{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "shutdown-timeout"},
        std::pair{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "log-line-prefix-template"}}) {
    if (const auto value = value_of(environment, variable); !value.empty())
      raw.defaults[option] = {value, variable};
  }
  for (auto it = environment.lower_bound("PET_");
       it != environment.end() && it->first.starts_with("PET_"); ++it)
    take_variable(raw, it->first, it->second);
}

[[noreturn]] void unknown_option(const std::string& name) {
  if (const std::string answer = answer_to_option(name); !answer.empty())
    usage_error(fmt::format("unknown option '--{}'{}", name, answer));
  const std::string near = nearest_option(name);
  usage_error(near.empty() ? fmt::format("unknown option '--{}'; see ddp-run --help", name)
                           : fmt::format("unknown option '--{}'; did you mean --{}?", name, near));
}

// -nproc_per_node=2: -n, or even -r with a value, is not meant.
void refuse_single_dash(const std::string& arg) {
  const auto equals = arg.find('=');
  const OptionSpec* option = find_option(std::string_view(arg).substr(1, equals - 1));
  if (option == nullptr) return;
  usage_error(fmt::format("unknown option '{}'; did you mean --{}{}?", arg, option->name,
                          equals == std::string::npos ? "" : arg.substr(equals)));
}

// As one word, as mpirun has them: -np 2, -np2.
[[noreturn]] void unknown_short(const std::string& arg) {
  const std::string name = arg.substr(1, arg.find_first_of("=0123456789", 1) - 1);
  const std::string answer = answer_to_option(name);
  usage_error(answer.empty() ? fmt::format("unknown option '{}'; see ddp-run --help", arg)
                             : fmt::format("unknown option '-{}'{}", name, answer));
}

// torchrun's options take precedence: what torchrun understands must mean the same here.
std::vector<const OptionSpec*> options_with_prefix(std::string_view prefix) {
  std::vector<const OptionSpec*> all;
  std::vector<const OptionSpec*> of_torchrun;
  for (const OptionSpec& option : option_table()) {
    if (prefix.empty() || !std::string_view(option.name).starts_with(prefix)) continue;
    all.push_back(&option);
    if (!option.own) of_torchrun.push_back(&option);
  }
  return of_torchrun.size() == 1 ? of_torchrun : all;
}

// The only option with this prefix, as in argparse; cxxopts takes no names that are cut short.
const OptionSpec* cut_short(const std::string& name) {
  const std::string begin = with_dashes(name);
  const auto found = options_with_prefix(begin);
  if (found.empty()) unknown_option(name);
  const std::string_view first = found.front()->name;
  if (found.size() > 1) {
    std::string names;
    for (const OptionSpec* option : found)
      names += fmt::format("{}--{}", names.empty() ? "" : " or ", option->name);
    usage_error(fmt::format("option '--{}' is ambiguous: {}", name, names));
  }
  // argparse calls this ambiguous: the names with - and with _ both match.
  if (begin.find('-') != std::string::npos || first.find('-') == std::string_view::npos)
    return found.front();
  // Another launcher's option comes first: --rank is not meant for --rank-order. But --u is not
  // python's -u.
  if (name.size() > 1 && !answer_to_option(name).empty()) unknown_option(name);
  usage_error(fmt::format("option '--{}' is too short; write --{}", name, first));
}

bool is_yes_or_no(const std::string& text) {
  constexpr std::string_view kWords[] = {"true", "false", "yes", "no", "1", "0"};
  return std::find(std::begin(kWords), std::end(kWords), with_dashes(text)) != std::end(kWords);
}

bool is_long_option(const std::string& arg) {
  return arg.starts_with("--") && find_option(arg.substr(2, arg.find('=') - 2)) != nullptr;
}

bool looks_like_program(const std::string& word) {
  return word.ends_with(".py") || word.ends_with("trainer");
}

// --standalone true train.py: /bin/true would run, and train.py be its argument.
void refuse_flag_value(const OptionSpec& flag, const std::vector<std::string>& words) {
  if (words.size() < 2 || !is_yes_or_no(words[0])) return;
  const std::string& next = words[1];
  const bool meant =
      looks_like_program(next) ||
      (is_long_option(next) && std::any_of(words.begin() + 2, words.end(), looks_like_program));
  if (!meant) return;
  usage_error(fmt::format("--{0} takes no value, but '{1}' follows; write --{0} {2}", flag.name,
                          words[0], next));
}

// A name or a file may well end in .py.
bool takes_any_text(const OptionSpec& option) {
  constexpr std::string_view kTexts[] = {"NAME", "FILE", "FOLDER", "ID", "TEXT", "TEXTS"};
  return std::find(std::begin(kTexts), std::end(kTexts), option.value) != std::end(kTexts);
}

// As in argparse, a negative number or a text with a space may be a value.
bool looks_like_option(const std::string& arg) {
  if (arg.size() < 2 || arg[0] != '-' || arg.find(' ') != std::string::npos) return false;
  return arg.find_first_not_of("0123456789.", 1) != std::string::npos;
}

// The next word is the option's value; cxxopts would take any, argparse takes no option.
void check_value(const OptionSpec& option, const std::vector<std::string>& words, std::size_t at) {
  if (at == words.size())
    usage_error(fmt::format("--{0} needs a value; write --{0}={1}", option.name, option.value));
  if (looks_like_option(words[at])) {
    usage_error(fmt::format(
        "--{0} needs a value, but the option '{1}' follows; write --{0}={1} if it is the value",
        option.name, words[at]));
  }
  if (words[at].ends_with(".py") && !takes_any_text(option)) {
    usage_error(fmt::format("--{0} needs a value, but the program '{1}' follows; write --{0}={2}",
                            option.name, words[at], option.value));
  }
}

// torchrun accepts the abbreviation silently, but it is rarely what the user meant.
void note_local_rank(RawOptions& raw, const std::string& name) {
  raw.hints.push_back(fmt::format(
      "--{} is short for --local-ranks-filter, as with torchrun: other ranks' output is hidden; "
      "leave it out, as workers find theirs in LOCAL_RANK, or write it behind the script",
      name));
}

// --nproc_per=2 -> --nproc-per-node=2. Moves `at` past the words of the option.
const OptionSpec* spell_long(RawOptions& raw, std::size_t& at) {
  std::string& word = raw.words[at++];
  const auto equals = std::min(word.find('='), word.size());
  const std::string name = word.substr(2, equals - 2);
  const OptionSpec* option = find_option(name);
  if (!option) option = cut_short(name);
  if (with_dashes(name) == "local-rank") note_local_rank(raw, name);
  word.replace(0, equals, fmt::format("--{}", option->name));
  const bool has_value = word.find('=') != std::string::npos;
  if (!option->value && has_value) {
    usage_error(fmt::format("--{0} takes no value, got '{1}'; write --{0} alone", option->name,
                            word.substr(word.find('=') + 1)));
  }
  if (option->value && !has_value) check_value(*option, raw.words, at++);
  return option;
}

// -mt3, -mt=3 -> -mt 3: cxxopts would take = for the value's beginning, and no -t0:3.
void spell_short(RawOptions& raw, std::size_t& at) {
  const std::string word = raw.words[at++];
  refuse_single_dash(word);
  for (std::size_t i = 1; i < word.size(); ++i) {
    const OptionSpec* option = find_option(word[i]);
    if (!option) unknown_short(word);
    if (word[i] == 'h') raw.short_help = true;
    if (!option->value) continue;
    const std::size_t value = i + 1;
    if (value == word.size()) return check_value(*option, raw.words, at++);
    raw.words[at - 1].resize(value);
    raw.words.insert(raw.words.begin() + static_cast<std::ptrdiff_t>(at++),
                     word.substr(value + (word[value] == '=' ? 1 : 0)));
    return;
  }
}

bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word != "--";
}

// cxxopts looks for options after the program as well, argparse leaves them to the program.
void end_options(std::vector<std::string>& words, std::size_t at, const OptionSpec* flag) {
  if (at < words.size() && words[at] == "--") return;
  const auto program = words.begin() + static_cast<std::ptrdiff_t>(at);
  if (flag && !flag->value) refuse_flag_value(*flag, {program, words.end()});
  words.insert(program, "--");
}

}  // namespace

RawOptions gather_options(int argc, const char* const* argv, const Environment& environment) {
  RawOptions raw;
  take_environment(raw, environment);
  raw.words.assign(argv + 1, argv + argc);
  const OptionSpec* last = nullptr;
  std::size_t at = 0;
  while (at < raw.words.size() && is_option(raw.words[at])) {
    const bool is_long = raw.words[at][1] == '-';
    last = is_long ? spell_long(raw, at) : nullptr;
    if (!is_long) spell_short(raw, at);
  }
  end_options(raw.words, at, last);
  return raw;
}

}  // namespace ddp::launch
