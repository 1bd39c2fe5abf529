#include "trainer/app/trainer_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cxxopts.hpp>
#include <map>

#include "trainer/app/trainer_help.h"
#include "trainer/config/show/key_reference.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/message.h"

namespace ddp::train {
namespace {

using Words = std::vector<std::string>;

/// One mode's options, as in "c,config=FILE": the short name, the long one with underscores (- is
/// read as well), and what its value is; without = it is a flag.
struct Options {
  std::string help;  ///< The command that lists them.
  Words words;
};

const Options kTrainOptions = {
    "trainer --help",
    {"c,config=FILE", "config_name=NAME", "config_path=DIR", "config_dir=DIR", "cfg=job",
     "info=defaults", "help_config", "m,multirun", "resolve", "format=yaml", "p,package=A.B",
     "throw_on_missing", "h,help", "version"}};
const Options kGenerateOptions = {
    "trainer generate --help",
    {"snapshot=FILE", "prompt=TEXT", "prompt_file=FILE", "prompt_per_line", "max_new_tokens=N",
     "temperature=T", "top_k=K", "top_p=P", "min_p=P", "repetition_penalty=R", "stop=TEXT",
     "num_samples=N", "batch_size=N", "seed=S", "device=cpu", "greedy", "json", "h,help"}};
const Options kExportOptions = {"trainer export --help",
                                {"snapshot=FILE", "format=huggingface", "output=FOLDER", "h,help"}};
const Options kEstimateOptions = {"trainer estimate --help",
                                  {"c,config=FILE", "config_name=NAME", "config_path=DIR",
                                   "config_dir=DIR", "world_size=N", "json", "h,help"}};
const Options kInspectOptions = {"trainer inspect --help", {"json", "h,help"}};
const Options kDoctorOptions = {"trainer doctor --help", {"h,help"}};
const Options kTokenizeOptions = {
    "trainer tokenize --help",
    {"tokenizer=NAME", "input=FILE", "output=FOLDER", "train", "vocab_size=N", "append_end_of_text",
     "overwrite", "shard_tokens=N", "threads=N", "h,help"}};
const Options kReportOptions = {"trainer report --help", {"output=FILE", "h,help"}};

/// The options of one mode, parsed by cxxopts, and what is left.
class Parsed {
 public:
  Parsed(const Words& words, const Options& options) : help_(options.help), declared_("trainer") {
    for (const std::string& word : options.words) declare(word);
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

  bool has(const std::string& name) const { return result_.count(name) > 0; }
  std::size_t times(const std::string& name) const { return result_.count(name); }
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
  void declare(const std::string& word) {
    const std::size_t equal = std::min(word.find('='), word.size());
    const std::string names = word.substr(0, equal);
    const std::string name = names.substr(names.find(',') + 1);
    const bool takes_value = equal < word.size();
    names_.push_back(name);
    values_["--" + name] = word.substr(std::min(equal + 1, word.size()));
    if (names != name) values_["-" + names.substr(0, 1)] = values_["--" + name];
    declared_.add_options()(names, "",
                            takes_value ? cxxopts::value<std::string>() : cxxopts::value<bool>());
  }

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

  /// A flag with a value, or an option without one: cxxopts ignores the first.
  void check_values(const Words& words) const {
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

  [[noreturn]] void fail_unknown(const std::string& word, bool after_dashes) const {
    const std::string option = word.substr(0, word.find('='));
    std::string name = option.substr(std::min(option.find_first_not_of('-'), option.size()));
    if (after_dashes)
      throw UserError(
          fmt::format("{}: only KEY=VALUE may follow --; put options before it", option));
    if (name.find('.') != std::string::npos) {
      const bool valued = option.size() < word.size();
      throw UserError(fmt::format("{}: not an option; to override a key, write {}{}", option, name,
                                  valued ? word.substr(option.size()) : "=VALUE"));
    }
    std::replace(name.begin(), name.end(), '-', '_');
    const std::string near = nearest(name, names_);
    throw UserError(fmt::format("{}: no such option; {}", option,
                                near.empty() ? "see " + help_ : "did you mean '--" + near + "'?"));
  }

  std::string help_;
  cxxopts::Options declared_;
  cxxopts::ParseResult result_;
  Words names_;
  std::map<std::string, std::string> values_;  ///< "-c", "--config" -> "FILE"; "" for a flag
  Words rest_;
};

int64_t whole_number(const Parsed& parsed, const std::string& name, int64_t low) {
  const std::string text = parsed.text(name);
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || value < low) {
    throw UserError(fmt::format("--{}: '{}' is not an integer >= {}; e.g. --{} {}", name, text, low,
                                name, std::max<int64_t>(low, 100)));
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
    throw UserError("inspect: no snapshot given; write trainer inspect SNAPSHOT");
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

/// What belongs to --train, and what --tokenizer needs of it.
void take_training(const Parsed& parsed, TokenizeArgs& options) {
  options.train = parsed.has("train");
  if (parsed.has("vocab_size")) options.vocab_size = whole_number(parsed, "vocab_size", 257);
  const bool bpe = options.tokenizer == "bpe";
  if (bpe && (!options.train || options.vocab_size == 0)) {
    throw UserError(
        "--tokenizer: bpe is trained on the input; add --train --vocab_size N, or name the folder "
        "of one that is trained");
  }
  if (options.vocab_size != 0 && !bpe)
    throw UserError("--vocab_size: belongs to --tokenizer bpe --train; leave it out");
  if (options.train && !bpe && options.tokenizer != "char")
    throw UserError(
        fmt::format("--train: {} is not trained; leave it out, or write --tokenizer bpe",
                    shown(options.tokenizer)));
}

TrainerArgs parse_tokenize(const Words& words) {
  const Parsed parsed(words, kTokenizeOptions);
  if (parsed.has("help")) return help(help_tokenize());
  TrainerArgs args;
  args.mode = Mode::kTokenize;
  for (const char* name : {"tokenizer", "input", "output"}) {
    if (!parsed.has(name) || parsed.text(name).empty())
      throw UserError(fmt::format("--{}: is required; see trainer tokenize --help", name));
  }
  if (parsed.times("input") > 1)
    throw UserError("--input: given twice; write all files after one --input");
  TokenizeArgs& options = args.tokenize;
  options.tokenizer = parsed.text("tokenizer");
  options.inputs = {parsed.text("input")};
  options.inputs.insert(options.inputs.end(), parsed.rest().begin(), parsed.rest().end());
  options.output = parsed.text("output");
  options.append_end_of_text = parsed.has("append_end_of_text");
  options.overwrite = parsed.has("overwrite");
  if (parsed.has("shard_tokens")) options.shard_tokens = whole_number(parsed, "shard_tokens", 1);
  if (parsed.has("threads")) options.threads = whole_number(parsed, "threads", 1);
  take_training(parsed, options);
  return args;
}

TrainerArgs parse_report(const Words& words) {
  const Parsed parsed(words, kReportOptions);
  if (parsed.has("help")) return help(help_report());
  if (parsed.rest().empty()) {
    throw UserError(
        "report: needs the folder of a run; write trainer report RUN_DIR --output FILE.html");
  }
  TrainerArgs args;
  args.mode = Mode::kReport;
  args.report_folders = parsed.rest();
  if (parsed.has("output")) args.report_output = parsed.text("output");
  if (args.report_output.empty())
    throw UserError("--output: is empty; give the name of the page, such as report.html");
  return args;
}

Words mode_names();

void check_overrides(const Words& rest) {
  for (const std::string& word : rest) {
    if (word.find('=') != std::string::npos || word.starts_with('~')) continue;
    const std::string near = nearest(word, mode_names());
    std::string fix = "write KEY=VALUE to override a value";
    if (!near.empty()) fix = fmt::format("did you mean 'trainer {}'? The mode comes first", near);
    if (word == "help") fix = "write trainer --help";
    if (word.ends_with(".yaml") || word.ends_with(".yml"))
      fix = "did you mean --config " + word + "?";
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
      throw UserError(fmt::format("--{}: only works with --cfg; write --cfg job --{}", name, name));
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
        throw UserError(fmt::format("--{}: conflicts with --config; keep one", name));
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

struct Subcommand {
  const char* name;
  TrainerArgs (*parse)(const Words& words);
};
constexpr Subcommand kModes[] = {{"generate", parse_generate}, {"export", parse_export},
                                 {"estimate", parse_estimate}, {"inspect", parse_inspect},
                                 {"doctor", parse_doctor},     {"tokenize", parse_tokenize},
                                 {"report", parse_report}};

Words mode_names() {
  Words names;
  for (const Subcommand& mode : kModes) names.emplace_back(mode.name);
  return names;
}

}  // namespace

TrainerArgs parse_trainer_args(int argc, const char* const* argv) {
  const Words words(argv + std::min(argc, 1), argv + argc);
  try {
    for (const Subcommand& mode : kModes) {
      if (!words.empty() && words.front() == mode.name)
        return mode.parse(Words(words.begin() + 1, words.end()));
    }
    return parse_train(words);
  } catch (const UserError& e) {
    throw UserError(one_line(e.what()));
  } catch (const cxxopts::exceptions::exception& e) {
    throw UserError(fmt::format("{}; see trainer --help", one_line(e.what())));
  }
}

std::string show_text(const TrainerArgs& args) {
  if (args.show_origins) return show_origins(args.config, args.overrides);
  return args.multirun ? show_sweep(args.config, args.overrides, args.show)
                       : show_config(args.config, args.overrides, args.show);
}

}  // namespace ddp::train
