#include "launcher/raw_options.h"

#include <fmt/format.h>

#include <cctype>
#include <utility>

#include "launcher/console.h"
#include "launcher/option_table.h"
#include "launcher/suggest.h"

namespace ddp::launch {
namespace {

std::string with_dashes(std::string name) {
  for (char& c : name)
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::string nearest_option(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& option : option_table()) names.emplace_back(option.name);
  return nearest(with_dashes(name), names);
}

std::string pet_name(const OptionSpec& option) {
  std::string name = "PET_";
  for (const char* c = option.name; *c; ++c) {
    name += *c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
  }
  return name;
}

// The value of a flag's variable; torchrun takes numbers only.
bool is_on(const std::string& name, const std::string& value) {
  if (value == "1" || value == "true" || value == "True") return true;
  if (value == "0" || value == "false" || value == "False" || value.empty()) return false;
  usage_error(fmt::format("{}={}: must be 1 or 0", name, value));
}

struct PetOptions {
  std::vector<std::string> options;  // as --name=value
  std::vector<std::string> hints;
};

PetOptions options_from(const Environment& environment) {
  PetOptions pet;
  for (auto it = environment.lower_bound("PET_");
       it != environment.end() && it->first.rfind("PET_", 0) == 0; ++it) {
    const auto& [name, value] = *it;
    const OptionSpec* option = find_option(with_dashes(name.substr(4)));
    if (!option || option->group == OptionGroup::Other || pet_name(*option) != name) {
      const std::string near = nearest_option(name.substr(4));
      const OptionSpec* meant = near.empty() ? nullptr : find_option(near);
      pet.hints.push_back(fmt::format("{} sets no option{}", name,
                                      meant ? "; did you mean " + pet_name(*meant) + "?" : ""));
    } else if (option->value) {
      pet.options.push_back(fmt::format("--{}={}", option->name, value));
    } else if (is_on(name, value)) {
      pet.options.push_back(fmt::format("--{}=true", option->name));
    }
  }
  return pet;
}

// torchrun's older variables, behind the option and its PET_ variable.
std::vector<std::string> older_variables(const Environment& environment) {
  std::vector<std::string> options;
  for (const auto& [variable, option] :
       {std::pair{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "shutdown-timeout"},
        std::pair{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "log-line-prefix-template"}}) {
    const auto found = environment.find(variable);
    if (found != environment.end() && !found->second.empty()) {
      options.push_back(fmt::format("--{}={}", option, found->second));
    }
  }
  return options;
}

// cxxopts neither stops at the first positional argument nor knows that `_` is `-`: it gets
// `--name=value` only.
struct SplitArgs {
  std::vector<std::string> options;
  std::vector<std::string> program;
};

class ArgSplitter {
 public:
  ArgSplitter(int argc, const char* const* argv) : args_(argv + 1, argv + argc) {}

  SplitArgs split() {
    while (next_ < args_.size()) {
      const std::string arg = args_[next_];
      if (arg == "--") {
        ++next_;
        break;
      }
      if (arg.size() < 2 || arg[0] != '-') break;
      ++next_;
      if (arg[1] == '-') {
        take_long(arg.substr(2));
      } else {
        take_short(arg);
      }
    }
    out_.program.assign(args_.begin() + static_cast<std::ptrdiff_t>(next_), args_.end());
    return std::move(out_);
  }

 private:
  void take_long(const std::string& text) {
    const auto equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const OptionSpec* option = find_option(name);
    if (!option) unknown_option(name);
    if (equals == std::string::npos) {
      add(*option, option->value ? required_value(*option) : "true");
    } else if (!option->value) {
      usage_error(fmt::format("--{} takes no value, got '{}'; write just --{}", option->name,
                              text.substr(equals + 1), option->name));
    } else {
      add(*option, text.substr(equals + 1));
    }
  }

  void take_short(const std::string& arg) {
    const OptionSpec* option = find_option(arg[1]);
    if (!option) usage_error(fmt::format("unknown option '{}'; see ddp-run --help", arg));
    if (!option->value) {
      if (arg.size() > 2) usage_error(fmt::format("unknown option '{}'; see ddp-run --help", arg));
      add(*option, "true");
    } else {
      add(*option, arg.size() > 2 ? arg.substr(2) : required_value(*option));
    }
  }

  std::string required_value(const OptionSpec& option) {
    if (next_ == args_.size()) {
      usage_error(fmt::format("--{0} needs a value; write --{0}={1}", option.name, option.value));
    }
    return args_[next_++];
  }

  void add(const OptionSpec& option, const std::string& value) {
    out_.options.push_back(fmt::format("--{}={}", option.name, value));
  }

  [[noreturn]] static void unknown_option(const std::string& name) {
    const std::string near = nearest_option(name);
    usage_error(near.empty()
                    ? fmt::format("unknown option '--{}'; see ddp-run --help", name)
                    : fmt::format("unknown option '--{}'; did you mean --{}?", name, near));
  }

  std::vector<std::string> args_;
  std::size_t next_ = 0;
  SplitArgs out_;
};

}  // namespace

RawOptions gather_options(int argc, const char* const* argv, const Environment& environment) {
  SplitArgs split = ArgSplitter(argc, argv).split();
  PetOptions pet = options_from(environment);
  RawOptions raw;
  raw.options = older_variables(environment);
  raw.options.insert(raw.options.end(), pet.options.begin(), pet.options.end());
  raw.options.insert(raw.options.end(), split.options.begin(), split.options.end());
  raw.program = std::move(split.program);
  raw.hints = std::move(pet.hints);
  return raw;
}

}  // namespace ddp::launch
