#include "trainer/app/trainer_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cxxopts.hpp>

#include "trainer/app/trainer_help.h"
#include "trainer/config/show/key_reference.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/message.h"

namespace ddp::train {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kSeeHelp = "; see trainer --help";

/// Long names with underscores, each after its short one; = for one that takes a value. Both _ and
/// - are read.
const Words kTrainOptions = {"c,config=", "config_name=", "config_path=", "config_dir=",
                             "cfg=",      "info=",        "help_config",  "m,multirun",
                             "resolve",   "format=",      "p,package=",   "throw_on_missing",
                             "h,help",    "version"};
const Words kGenerateOptions = {"snapshot=",
                                "prompt=",
                                "prompt_file=",
                                "prompt_per_line",
                                "max_new_tokens=",
                                "temperature=",
                                "top_k=",
                                "top_p=",
                                "min_p=",
                                "stop=",
                                "num_samples=",
                                "batch_size=",
                                "repetition_penalty=",
                                "seed=",
                                "device=",
                                "greedy",
                                "json",
                                "h,help"};
const Words kExportOptions = {"snapshot=", "format=", "output=", "h,help"};
const Words kEstimateOptions = {
    "c,config=", "config_name=", "config_path=", "config_dir=", "world_size=", "json", "h,help"};
const Words kInspectOptions = {"json", "h,help"};
const Words kDoctorOptions = {"h,help"};

/// The options of one mode, parsed by cxxopts, and what is left.
class Parsed {
 public:
  Parsed(const Words& words, const Words& options) : declared_("trainer") {
    for (std::string option : options) {
      const bool takes_value = option.ends_with('=');
      if (takes_value) option.pop_back();
      names_.push_back(option.substr(option.find(',') + 1));
      declared_.add_options()(option, "",
                              takes_value ? cxxopts::value<std::string>() : cxxopts::value<bool>());
    }
    declared_.allow_unrecognised_options();
    const Words spelled = in_one_spelling(words);
    std::vector<const char*> argv = {"trainer"};
    for (const std::string& word : spelled) argv.push_back(word.c_str());
    result_ = declared_.parse(static_cast<int>(argv.size()), argv.data());
    rest_ = result_.unmatched();
    for (const std::string& word : rest_) {
      if (word.size() > 1 && word.starts_with('-')) fail_unknown(word);
    }
  }

  bool has(const std::string& name) const { return result_.count(name) > 0; }
  std::string text(const std::string& name) const { return result_[name].as<std::string>(); }
  /// Every value of an option that may be given several times.
  Words texts(const std::string& name) const {
    Words found;
    for (const auto& argument : result_.arguments()) {
      if (argument.key() == name) found.push_back(argument.value());
    }
    return found;
  }
  const Words& rest() const { return rest_; }

 private:
  /// --max-new-tokens=5 -> --max_new_tokens=5, and Hydra's -cn, which cxxopts would take for -c n.
  Words in_one_spelling(Words words) const {
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

  [[noreturn]] void fail_unknown(const std::string& word) const {
    const std::string option = word.substr(0, word.find('='));
    std::string name = option.substr(std::min(option.find_first_not_of('-'), option.size()));
    std::replace(name.begin(), name.end(), '-', '_');
    const std::string near = nearest(name, names_);
    throw UserError(
        fmt::format("{}: no such option; {}", option,
                    near.empty() ? "trainer --help lists them" : "did you mean '--" + near + "'?"));
  }

  cxxopts::Options declared_;
  cxxopts::ParseResult result_;
  Words names_;
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

/// A finite number, or nothing.
std::optional<double> finite_number(const std::string& text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

double positive_number(const Parsed& parsed, const std::string& name) {
  const std::string text = parsed.text(name);
  const auto value = finite_number(text);
  if (value && *value > 0) return *value;
  throw UserError(
      fmt::format("--{}: '{}' is not a number > 0; give e.g. --{} 0.8", name, text, name));
}

/// `zero`: whether 0 itself is meant.
double share(const Parsed& parsed, const std::string& name, bool zero) {
  const std::string text = parsed.text(name);
  const auto value = finite_number(text);
  if (value && *value <= 1 && (*value > 0 || (zero && *value == 0))) return *value;
  throw UserError(fmt::format("--{}: '{}' is not a number {} 0 and <= 1; give e.g. --{} {}", name,
                              text, zero ? ">=" : ">", name, zero ? "0.05" : "0.9"));
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

/// One of the words, by its position.
std::size_t choice(const Parsed& parsed, const std::string& name, const Words& words) {
  const auto found = std::find(words.begin(), words.end(), parsed.text(name));
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  const std::string near = nearest(parsed.text(name), words);
  throw UserError(fmt::format("--{}: '{}' is none of {}{}", name, parsed.text(name),
                              fmt::join(words, ", "),
                              near.empty() ? "" : "; did you mean '" + near + "'?"));
}

void require(const Parsed& parsed, const std::string& mode, const Words& names) {
  for (const std::string& name : names) {
    if (!parsed.has(name))
      throw UserError(fmt::format("--{}: is required; see trainer {} --help", name, mode));
  }
}

/// Either --prompt or --prompt_file.
void take_prompt(const Parsed& parsed, GenerateArgs& options) {
  if (!parsed.has("prompt_file")) require(parsed, "generate", {"prompt"});
  if (parsed.has("prompt") && parsed.has("prompt_file"))
    throw UserError("--prompt_file: given together with --prompt; keep one of them");
  options.prompt_per_line = parsed.has("prompt_per_line");
  if (options.prompt_per_line && !parsed.has("prompt_file"))
    throw UserError("--prompt_per_line: belongs to --prompt_file; give that or leave it out");
  if (parsed.has("prompt")) options.prompt = parsed.text("prompt");
  if (parsed.has("prompt_file")) options.prompt_file = parsed.text("prompt_file");
}

void take_sampling(const Parsed& parsed, GenerateArgs& options) {
  options.greedy = parsed.has("greedy");
  if (parsed.has("max_new_tokens"))
    options.max_new_tokens = whole_number(parsed, "max_new_tokens", 0);
  if (parsed.has("temperature")) options.temperature = positive_number(parsed, "temperature");
  if (parsed.has("top_k")) options.top_k = whole_number(parsed, "top_k", 1);
  if (parsed.has("top_p")) options.top_p = share(parsed, "top_p", false);
  if (parsed.has("min_p")) options.min_p = share(parsed, "min_p", true);
  if (parsed.has("repetition_penalty"))
    options.repetition_penalty = positive_number(parsed, "repetition_penalty");
  if (parsed.has("seed")) options.seed = whole_number(parsed, "seed", 0);
  options.stops = parsed.texts("stop");
  for (const std::string& stop : options.stops) {
    if (stop.empty()) throw UserError("--stop: is empty; give the text to stop before");
  }
}

TrainerArgs parse_generate(const Words& words) {
  const Parsed parsed(words, kGenerateOptions);
  if (parsed.has("help")) return help(help_generate());
  refuse_rest(parsed.rest(), "generate");
  TrainerArgs args;
  args.mode = Mode::kGenerate;
  require(parsed, "generate", {"snapshot"});
  GenerateArgs& options = args.generate;
  options.snapshot = parsed.text("snapshot");
  take_prompt(parsed, options);
  take_sampling(parsed, options);
  options.json = parsed.has("json");
  if (parsed.has("num_samples")) options.num_samples = whole_number(parsed, "num_samples", 1);
  if (parsed.has("batch_size")) options.batch_size = whole_number(parsed, "batch_size", 1);
  if (parsed.has("device"))
    options.device = static_cast<DeviceChoice>(choice(parsed, "device", {"auto", "cpu", "cuda"}));
  return args;
}

TrainerArgs parse_export(const Words& words) {
  const Parsed parsed(words, kExportOptions);
  if (parsed.has("help")) return help(help_export());
  refuse_rest(parsed.rest(), "export");
  require(parsed, "export", {"snapshot", "output"});
  TrainerArgs args;
  args.mode = Mode::kExport;
  args.exporting.snapshot = parsed.text("snapshot");
  args.exporting.output = parsed.text("output");
  if (parsed.has("format")) {
    args.exporting.format = static_cast<ExportFormat>(
        choice(parsed, "format", {"huggingface", "torch", "safetensors"}));
  }
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
    const std::string near = nearest(word, {"generate", "export", "estimate", "inspect", "doctor"});
    std::string fix = "write key=value to change a value";
    if (!near.empty()) fix = fmt::format("did you mean 'trainer {}'? A mode comes first", near);
    if (word == "help") fix = "write trainer --help";
    if (word.ends_with(".yaml") || word.ends_with(".yml"))
      fix = "a file is given with --config " + word;
    throw UserError(fmt::format("{}: not an override; {}", word, fix));
  }
}

ShowOptions show_options(const Parsed& parsed) {
  ShowOptions options;
  options.what = static_cast<ShowWhat>(choice(parsed, "cfg", {"job", "hydra", "all"}));
  if (parsed.has("format") && choice(parsed, "format", {"yaml", "json"}) == 1)
    options.format = ShowFormat::kJson;
  options.resolve = parsed.has("resolve");
  options.throw_on_missing = parsed.has("throw_on_missing");
  if (parsed.has("package")) options.package = parsed.text("package");
  return options;
}

/// `--cfg`, `--info defaults` and what belongs to them.
void take_show_options(const Parsed& parsed, TrainerArgs& args) {
  for (const char* name : {"resolve", "format", "package", "throw_on_missing"}) {
    if (parsed.has(name) && !parsed.has("cfg"))
      throw UserError(fmt::format("--{}: belongs to --cfg; write --cfg job --{}", name, name));
  }
  if (!parsed.has("cfg") && !parsed.has("info")) return;
  args.mode = Mode::kShow;
  args.show_origins = parsed.has("info");
  if (parsed.has("info")) choice(parsed, "info", {"defaults"});
  if (parsed.has("cfg")) args.show = show_options(parsed);
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

TrainerArgs parse_estimate(const Words& words) {
  const Parsed parsed(words, kEstimateOptions);
  if (parsed.has("help")) return help(help_estimate());
  check_overrides(parsed.rest());
  TrainerArgs args;
  args.mode = Mode::kEstimate;
  args.config = config_source(parsed);
  args.overrides = parsed.rest();
  args.estimate.json = parsed.has("json");
  if (parsed.has("world_size")) args.estimate.world_size = whole_number(parsed, "world_size", 1);
  return args;
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
    if (mode == "export") return parse_export(options);
    if (mode == "estimate") return parse_estimate(options);
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
