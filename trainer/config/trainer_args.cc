#include "trainer/config/trainer_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cxxopts.hpp>

#include "trainer/config/config_reference.h"
#include "trainer/config/message.h"
#include "trainer/config/suggest.h"
#include "trainer/config/trainer_help.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kSeeHelp = "; see trainer --help";

/// An option as this file knows it: its name with underscores, and whether a value follows.
struct Option {
  std::string name;
  bool takes_value;
};

const std::vector<Option> kTrainOptions = {{"config", true},
                                           {"config_name", true},
                                           {"config_path", true},
                                           {"config_dir", true},
                                           {"cfg", true},
                                           {"info", true},
                                           {"help_config", false},
                                           {"multirun", false},
                                           {"resolve", false},
                                           {"format", true},
                                           {"package", true},
                                           {"no_schema", false},
                                           {"throw_on_missing", false},
                                           {"help", false},
                                           {"version", false}};
const std::vector<Option> kGenerateOptions = {
    {"snapshot", true}, {"prompt", true}, {"max_new_tokens", true}, {"temperature", true},
    {"top_k", true},    {"seed", true},   {"greedy", false},        {"help", false}};
const std::vector<Option> kInspectOptions = {{"json", false}, {"help", false}};
const std::vector<Option> kDoctorOptions = {{"help", false}};

/// As Hydra spells them; -c is --config here.
constexpr std::pair<const char*, const char*> kShortOptions[] = {
    {"-c", "config"},      {"-cn", "config_name"}, {"-cp", "config_path"},
    {"-cd", "config_dir"}, {"-p", "package"},      {"-m", "multirun"}};

std::string with_underscores(std::string text) {
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

const Option* find_option(const std::vector<Option>& options, const std::string& name) {
  for (const Option& option : options) {
    if (option.name == with_underscores(name)) return &option;
  }
  return nullptr;
}

[[noreturn]] void fail_option(const std::vector<Option>& options, const std::string& word) {
  const std::string name = word.substr(0, word.find('=')).substr(word.find_first_not_of('-'));
  Words names;
  for (const Option& option : options) names.push_back(option.name);
  const std::string near = nearest(with_underscores(name), names);
  throw UserError(
      fmt::format("{}: no such option; {}", word.substr(0, word.find('=')),
                  near.empty() ? "trainer --help lists them" : "did you mean '--" + near + "'?"));
}

/// The words of one mode: options in one spelling (`--max_new_tokens=5`), so that a value may start
/// with a dash and cxxopts sees one form only, and everything else.
struct Split {
  Words options;
  Words rest;
};

/// `-c` and `-h` as long options; "" for a word that is no option.
std::string long_name(const std::string& word, const std::vector<Option>& options) {
  if (word == "-h") return "help";
  if (find_option(options, "config") != nullptr) {
    for (const auto& [brief, name] : kShortOptions) {
      if (word == brief) return name;
    }
  }
  if (word.size() < 2 || word.front() != '-') return "";
  const std::string name = word.substr(0, word.find('=')).substr(2);
  if (!word.starts_with("--") || find_option(options, name) == nullptr) fail_option(options, word);
  return name;
}

Split split_words(const Words& words, const std::vector<Option>& options) {
  Split split;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      split.rest.insert(split.rest.end(), words.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                        words.end());
      break;
    }
    const std::string name = long_name(word, options);
    if (name.empty()) {
      split.rest.push_back(word);
      continue;
    }
    const Option& option = *find_option(options, name);
    const std::size_t equal = word.find('=');
    if (!option.takes_value && equal != std::string::npos) {
      throw UserError(
          fmt::format("--{}: takes no value; remove '{}'", option.name, word.substr(equal)));
    }
    std::string normal = "--" + option.name;
    if (equal != std::string::npos) normal += word.substr(equal);
    if (option.takes_value && equal == std::string::npos) {
      if (i + 1 >= words.size())
        throw UserError(fmt::format("--{}: needs a value{}", option.name, kSeeHelp));
      normal += "=" + words[++i];
    }
    split.options.push_back(std::move(normal));
  }
  return split;
}

cxxopts::Options declare(const std::vector<Option>& options) {
  cxxopts::Options declared("trainer");
  for (const Option& option : options) {
    if (option.takes_value) {
      declared.add_options()(option.name, "", cxxopts::value<std::string>());
    } else {
      declared.add_options()(option.name, "");
    }
  }
  declared.allow_unrecognised_options();
  return declared;
}

/// The options of one mode, parsed, and what is left.
class Parsed {
 public:
  Parsed(const Words& words, const std::vector<Option>& options) : declared_(declare(options)) {
    Split split = split_words(words, options);
    rest_ = std::move(split.rest);
    std::vector<const char*> argv = {"trainer"};
    for (const std::string& word : split.options) argv.push_back(word.c_str());
    result_ = declared_.parse(static_cast<int>(argv.size()), argv.data());
  }

  bool has(const std::string& name) const { return result_.count(name) > 0; }
  std::string text(const std::string& name) const { return result_[name].as<std::string>(); }
  const Words& rest() const { return rest_; }

 private:
  cxxopts::Options declared_;
  cxxopts::ParseResult result_;
  Words rest_;
};

int64_t whole_number(const Parsed& parsed, const std::string& name, int64_t low) {
  const std::string text = parsed.text(name);
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || value < low) {
    throw UserError(fmt::format("--{}: '{}' is not a whole number >= {}; give e.g. --{} {}", name,
                                text, low, name, std::max<int64_t>(low, 100)));
  }
  return value;
}

double positive_number(const Parsed& parsed, const std::string& name) {
  const std::string text = parsed.text(name);
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() ||
      !std::isfinite(value) || value <= 0) {
    throw UserError(
        fmt::format("--{}: '{}' is not a number > 0; give e.g. --{} 0.8", name, text, name));
  }
  return value;
}

void refuse_rest(const Words& rest, const std::string& mode) {
  if (rest.empty()) return;
  throw UserError(
      fmt::format("{}: unexpected argument; see trainer {} --help", rest.front(), mode));
}

TrainerArgs help(std::string text) {
  TrainerArgs args;
  args.mode = Mode::kHelp;
  args.help_text = std::move(text);
  return args;
}

TrainerArgs parse_generate(const Words& words) {
  const Parsed parsed(words, kGenerateOptions);
  if (parsed.has("help")) return help(help_generate());
  refuse_rest(parsed.rest(), "generate");
  TrainerArgs args;
  args.mode = Mode::kGenerate;
  for (const char* name : {"snapshot", "prompt"}) {
    if (!parsed.has(name))
      throw UserError(fmt::format("--{}: is required; see trainer generate --help", name));
  }
  args.generate.snapshot = parsed.text("snapshot");
  args.generate.prompt = parsed.text("prompt");
  args.generate.greedy = parsed.has("greedy");
  if (parsed.has("max_new_tokens"))
    args.generate.max_new_tokens = whole_number(parsed, "max_new_tokens", 0);
  if (parsed.has("temperature")) args.generate.temperature = positive_number(parsed, "temperature");
  if (parsed.has("top_k")) args.generate.top_k = whole_number(parsed, "top_k", 1);
  if (parsed.has("seed")) args.generate.seed = whole_number(parsed, "seed", 0);
  return args;
}

TrainerArgs parse_inspect(const Words& words) {
  const Parsed parsed(words, kInspectOptions);
  if (parsed.has("help")) return help(help_inspect());
  if (parsed.rest().empty())
    throw UserError("inspect: needs a snapshot file; write trainer inspect SNAPSHOT");
  refuse_rest(Words(parsed.rest().begin() + 1, parsed.rest().end()), "inspect");
  TrainerArgs args;
  args.mode = Mode::kInspect;
  args.inspect_snapshot = parsed.rest().front();
  args.inspect_json = parsed.has("json");
  return args;
}

TrainerArgs parse_doctor(const Words& words) {
  const Parsed parsed(words, kDoctorOptions);
  if (parsed.has("help")) return help(help_doctor());
  refuse_rest(parsed.rest(), "doctor");
  TrainerArgs args;
  args.mode = Mode::kDoctor;
  return args;
}

void check_overrides(const Words& rest) {
  for (const std::string& word : rest) {
    if (word.find('=') != std::string::npos || word.starts_with('~')) continue;
    const std::string near = nearest(word, {"generate", "inspect", "doctor"});
    std::string fix = "write key=value to change a value";
    if (!near.empty()) fix = fmt::format("did you mean 'trainer {}'? A mode comes first", near);
    if (word == "help") fix = "write trainer --help";
    if (word.ends_with(".yaml") || word.ends_with(".yml"))
      fix = "a file is given with --config " + word;
    throw UserError(fmt::format("{}: not an override; {}", word, fix));
  }
}

/// --config FILE, or Hydra's folder and name; the folder of the first is where groups lie.
ConfigSource config_source(const Parsed& parsed) {
  const auto text = [&parsed](const char* name, const std::string& otherwise) {
    return parsed.has(name) ? parsed.text(name) : otherwise;
  };
  if (!parsed.has("config") && !parsed.has("config_name")) {
    throw UserError(
        "--config: is required; write trainer --config FILE [key=value ...], or see trainer "
        "--help");
  }
  for (const char* name : {"config", "config_name", "config_path", "config_dir"}) {
    if (parsed.has(name) && parsed.text(name).empty())
      throw UserError(fmt::format("--{}: is empty; give a {}", name,
                                  std::string_view(name) == "config" ? "YAML file" : "name"));
  }
  if (parsed.has("config")) {
    for (const char* name : {"config_name", "config_path"}) {
      if (parsed.has(name))
        throw UserError(fmt::format("--{}: given together with --config; keep one of them", name));
    }
    ConfigSource source = ConfigSource::of_file(parsed.text("config"));
    if (parsed.has("config_dir")) source.further.push_back(parsed.text("config_dir"));
    return source;
  }
  const bool path = parsed.has("config_path");
  ConfigSource source = ConfigSource::of_name(
      path ? text("config_path", "") : text("config_dir", "."), text("config_name", ""));
  if (path && parsed.has("config_dir")) source.further.push_back(text("config_dir", ""));
  return source;
}

/// One of the words, by its position.
std::size_t choice(const Parsed& parsed, const std::string& name, const Words& words) {
  const auto found = std::find(words.begin(), words.end(), parsed.text(name));
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  const std::string near = nearest(parsed.text(name), words);
  throw UserError(fmt::format("--{}: '{}' is none of {}{}", name, parsed.text(name),
                              fmt::join(words, ", "),
                              near.empty() ? "" : "; did you mean '" + near + "'?"));
}

ShowOptions show_options(const Parsed& parsed) {
  ShowOptions options;
  options.what = static_cast<ShowWhat>(choice(parsed, "cfg", {"job", "hydra", "all"}));
  if (parsed.has("format") && choice(parsed, "format", {"yaml", "json"}) == 1)
    options.format = ShowFormat::kJson;
  options.resolve = parsed.has("resolve");
  options.schema = !parsed.has("no_schema");
  options.throw_on_missing = parsed.has("throw_on_missing");
  if (parsed.has("package")) options.package = parsed.text("package");
  return options;
}

/// `--cfg`, `--info defaults` and what belongs to them.
void take_show_options(const Parsed& parsed, TrainerArgs& args) {
  for (const char* name : {"resolve", "format", "package", "no_schema", "throw_on_missing"}) {
    if (parsed.has(name) && !parsed.has("cfg")) {
      throw UserError(fmt::format("--{}: belongs to --cfg; write --cfg job --{}", name, name));
    }
  }
  if (!parsed.has("cfg") && !parsed.has("info")) return;
  args.mode = Mode::kShow;
  args.show_origins = parsed.has("info");
  if (parsed.has("info")) choice(parsed, "info", {"defaults"});
  if (parsed.has("cfg")) args.show = show_options(parsed);
}

TrainerArgs help_config(const Parsed& parsed) {
  if (!parsed.has("format")) return help(config_reference_text());
  switch (choice(parsed, "format", {"text", "json", "markdown"})) {
    case 1:
      return help(config_schema_json());
    case 2:
      return help(config_reference_markdown());
    default:
      return help(config_reference_text());
  }
}

TrainerArgs parse_train(const Words& words) {
  const Parsed parsed(words, kTrainOptions);
  if (parsed.has("help")) return help(help_overall());
  if (parsed.has("help_config")) return help_config(parsed);
  TrainerArgs args;
  if (parsed.has("version")) {
    args.mode = Mode::kVersion;
    return args;
  }
  check_overrides(parsed.rest());
  args.config = config_source(parsed);
  args.overrides = parsed.rest();
  args.multirun = parsed.has("multirun");
  take_show_options(parsed, args);
  return args;
}

}  // namespace

TrainerArgs parse_trainer_args(int argc, const char* const* argv) {
  const Words words(argv + std::min(argc, 1), argv + argc);
  const std::string mode = words.empty() ? "" : words.front();
  const Words options(words.begin() + (words.empty() ? 0 : 1), words.end());
  try {
    if (mode == "generate") return parse_generate(options);
    if (mode == "inspect") return parse_inspect(options);
    if (mode == "doctor") return parse_doctor(options);
    return parse_train(words);
  } catch (const UserError& e) {
    throw UserError(one_line(e.what()));
  } catch (const cxxopts::exceptions::exception& e) {
    throw UserError(fmt::format("{}{}", e.what(), kSeeHelp));
  }
}

std::string show_text(const TrainerArgs& args) {
  if (args.show_origins) return show_origins(args.config, args.overrides);
  return args.multirun ? show_sweep(args.config, args.overrides, args.show)
                       : show_config(args.config, args.overrides, args.show);
}

}  // namespace ddp::train
