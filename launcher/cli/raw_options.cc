#include "launcher/cli/raw_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <string_view>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/suggest.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/other_launchers.h"

namespace ddp::launch {
namespace {

std::string with_dashes(std::string name) {
  for (char& c : name)
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
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
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error == std::errc{} && end == value.data() + value.size()) return number != 0;
  const std::string word = with_dashes(value);
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off" || word.empty()) return false;
  usage_error(fmt::format("{}={}: must be 1 or 0", name, value));
}

struct PetOptions {
  std::vector<std::string> options;  // as --name=value
  std::vector<std::string> hints;
  std::map<std::string, std::string> sources;
};

PetOptions options_from(const Environment& environment) {
  PetOptions pet;
  for (auto it = environment.lower_bound("PET_");
       it != environment.end() && it->first.rfind("PET_", 0) == 0; ++it) {
    const auto& [name, value] = *it;
    const OptionSpec* option = find_option(with_dashes(name.substr(4)));
    if (option && option->group == OptionGroup::kOther) {
      pet.hints.push_back(
          fmt::format("{} is ignored; give --{} on the command line", name, option->name));
    } else if (!option || pet_name(*option) != name) {
      const std::string near = nearest_option(name.substr(4));
      const OptionSpec* meant = near.empty() ? nullptr : find_option(near);
      pet.hints.push_back(fmt::format("{} is ignored: no such option{}", name,
                                      meant ? "; did you mean " + pet_name(*meant) + "?" : ""));
    } else if (option->value) {
      pet.options.push_back(fmt::format("--{}={}", option->name, value));
      pet.sources[fmt::format("--{}", option->name)] = name;
    } else if (is_on(name, value)) {
      pet.options.push_back(fmt::format("--{}=true", option->name));
    }
  }
  return pet;
}

// torchrun's older variables; the option and its PET_ variable take precedence.
PetOptions older_variables(const Environment& environment) {
  PetOptions older;
  for (const auto& [variable, option] :
       {std::pair{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "shutdown-timeout"},
        std::pair{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "log-line-prefix-template"}}) {
    const auto found = environment.find(variable);
    if (found != environment.end() && !found->second.empty()) {
      older.options.push_back(fmt::format("--{}={}", option, found->second));
      older.sources[fmt::format("--{}", option)] = variable;
    }
  }
  return older;
}

// torchrun's options take precedence when a name is abbreviated: what torchrun understands must
// mean the same here.
constexpr std::string_view kOfTorchrun[] = {"nnodes",
                                            "nproc-per-node",
                                            "rdzv-backend",
                                            "rdzv-endpoint",
                                            "rdzv-id",
                                            "rdzv-conf",
                                            "standalone",
                                            "max-restarts",
                                            "monitor-interval",
                                            "start-method",
                                            "event-log-handler",
                                            "role",
                                            "module",
                                            "no-python",
                                            "run-path",
                                            "log-dir",
                                            "redirects",
                                            "tee",
                                            "log-line-prefix-template",
                                            "local-ranks-filter",
                                            "duplicate-stdout-filters",
                                            "duplicate-stderr-filters",
                                            "node-rank",
                                            "master-addr",
                                            "master-port",
                                            "local-addr",
                                            "logs-specs",
                                            "numa-binding",
                                            "signals-to-handle",
                                            "shutdown-timeout",
                                            "virtual-local-rank",
                                            "print-completion",
                                            "help"};

bool is_of_torchrun(const OptionSpec* option) {
  return std::find(std::begin(kOfTorchrun), std::end(kOfTorchrun), option->name) !=
         std::end(kOfTorchrun);
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

// The only option with this prefix, as in argparse.
const OptionSpec* cut_short(const std::string& name) {
  const std::string begin = with_dashes(name);
  std::vector<const OptionSpec*> all;
  for (const auto& option : option_table()) {
    if (!begin.empty() && std::string_view(option.name).substr(0, begin.size()) == begin) {
      all.push_back(&option);
    }
  }
  std::vector<const OptionSpec*> found = all;
  std::erase_if(found, [](const OptionSpec* option) { return !is_of_torchrun(option); });
  if (found.size() != 1) found = all;
  if (found.empty()) unknown_option(name);
  if (found.size() == 1) {
    // argparse calls this ambiguous: the names with - and with _ both match.
    if (begin.find('-') == std::string::npos &&
        std::string_view(found.front()->name).find('-') != std::string_view::npos) {
      // Another launcher's option comes first: --rank is not meant for --rank-order. But --u is not
      // python's -u.
      if (name.size() > 1 && !answer_to_option(name).empty()) unknown_option(name);
      usage_error(fmt::format("option '--{}' is too short; write --{}", name, found.front()->name));
    }
    return found.front();
  }
  std::string names;
  for (const OptionSpec* option : found) {
    names += fmt::format("{}--{}", names.empty() ? "" : " or ", option->name);
  }
  usage_error(fmt::format("option '--{}' is ambiguous: {}", name, names));
}

// cxxopts neither stops at the first positional argument nor treats `_` as `-`, so it gets only
// `--name=value`.
struct SplitArgs {
  std::vector<std::string> options;
  bool short_help = false;
  std::vector<std::string> program;
  std::vector<std::string> hints;
};

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

class ArgSplitter {
 public:
  ArgSplitter(int argc, const char* const* argv) : args_(argv + 1, argv + argc) {}

  SplitArgs split() {
    while (next_ < args_.size()) {
      const std::string arg = args_[next_];
      if (arg == "--") {
        ++next_;
        last_flag_ = nullptr;
        break;
      }
      if (arg.size() < 2 || arg[0] != '-') break;
      ++next_;
      last_flag_ = nullptr;
      if (arg[1] == '-') {
        take_long(arg.substr(2));
      } else {
        take_short(arg);
      }
    }
    out_.program.assign(args_.begin() + static_cast<std::ptrdiff_t>(next_), args_.end());
    if (last_flag_ != nullptr) refuse_flag_value(*last_flag_, out_.program);
    return std::move(out_);
  }

 private:
  void take_long(const std::string& text) {
    const auto equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const OptionSpec* option = find_option(name);
    if (!option) option = cut_short(name);
    if (equals == std::string::npos) {
      last_flag_ = option->value ? nullptr : option;
      add(*option, option->value ? required_value(*option) : "true");
    } else if (!option->value) {
      usage_error(fmt::format("--{} takes no value, got '{}'; write --{} alone", option->name,
                              text.substr(equals + 1), option->name));
    } else {
      add(*option, text.substr(equals + 1));
    }
    if (with_dashes(name) == "local-rank") note_local_rank(name);
  }

  // torchrun accepts the abbreviation silently, but it is rarely what the user meant.
  void note_local_rank(const std::string& name) {
    out_.hints.push_back(fmt::format(
        "--{} is short for --local-ranks-filter, as with torchrun: other ranks' output is hidden; "
        "leave it out, as workers find theirs in LOCAL_RANK, or write it behind the script",
        name));
  }

  // -m, -t3, -t 3, -mt3: flags can be combined, and the last may take a value.
  void take_short(const std::string& arg) {
    refuse_single_dash(arg);
    for (std::size_t i = 1; i < arg.size(); ++i) {
      const OptionSpec* option = find_option(arg[i]);
      if (!option) unknown_short(arg);
      if (option->value) {
        const std::size_t value = i + 1 + (i + 1 < arg.size() && arg[i + 1] == '=' ? 1 : 0);
        return add(*option, i + 1 < arg.size() ? arg.substr(value) : required_value(*option));
      }
      if (arg[i] == 'h') out_.short_help = true;
      add(*option, "true");
    }
  }

  std::string required_value(const OptionSpec& option) {
    if (next_ == args_.size()) {
      usage_error(fmt::format("--{0} needs a value; write --{0}={1}", option.name, option.value));
    }
    if (looks_like_option(args_[next_])) {
      usage_error(fmt::format(
          "--{0} needs a value, but the option '{1}' follows; write --{0}={1} if it is the value",
          option.name, args_[next_]));
    }
    if (args_[next_].ends_with(".py") && !takes_any_text(option)) {
      usage_error(fmt::format("--{0} needs a value, but the program '{1}' follows; write --{0}={2}",
                              option.name, args_[next_], option.value));
    }
    return args_[next_++];
  }

  // A name or a file may well end in .py.
  static bool takes_any_text(const OptionSpec& option) {
    constexpr std::string_view kTexts[] = {"NAME", "FILE", "FOLDER", "ID", "TEXT", "TEXTS"};
    return std::find(std::begin(kTexts), std::end(kTexts), option.value) != std::end(kTexts);
  }

  // As in argparse, a negative number or a text with a space may be a value.
  static bool looks_like_option(const std::string& arg) {
    if (arg.size() < 2 || arg[0] != '-' || arg.find(' ') != std::string::npos) return false;
    return arg.find_first_not_of("0123456789.", 1) != std::string::npos;
  }

  void add(const OptionSpec& option, const std::string& value) {
    out_.options.push_back(fmt::format("--{}={}", option.name, value));
  }

  std::vector<std::string> args_;
  std::size_t next_ = 0;
  const OptionSpec* last_flag_ = nullptr;  // if it was the last word
  SplitArgs out_;
};

}  // namespace

RawOptions gather_options(int argc, const char* const* argv, const Environment& environment) {
  SplitArgs split = ArgSplitter(argc, argv).split();
  PetOptions pet = options_from(environment);
  PetOptions older = older_variables(environment);
  RawOptions raw;
  raw.options = std::move(older.options);
  raw.sources = std::move(pet.sources);
  raw.sources.merge(older.sources);
  for (const auto& option : split.options) raw.sources.erase(option.substr(0, option.find('=')));
  raw.options.insert(raw.options.end(), pet.options.begin(), pet.options.end());
  raw.options.insert(raw.options.end(), split.options.begin(), split.options.end());
  raw.short_help = split.short_help;
  raw.program = std::move(split.program);
  raw.hints = std::move(pet.hints);
  raw.hints.insert(raw.hints.end(), split.hints.begin(), split.hints.end());
  return raw;
}

}  // namespace ddp::launch
