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
const Words kGenerateOptions = {"snapshot=", "prompt=", "max_new_tokens=", "temperature=",
                                "top_k=",    "seed=",   "greedy",          "h,help"};
const Words kInspectOptions = {"json", "h,help"};
const Words kDoctorOptions = {"h,help"};
const Words kTokenizeOptions = {
    "tokenizer=",         "input=",    "output=",       "train",    "vocab_size=",
    "append_end_of_text", "overwrite", "shard_tokens=", "threads=", "h,help"};
const Words kReportOptions = {"output=", "h,help"};

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
  std::size_t times(const std::string& name) const { return result_.count(name); }
  std::string text(const std::string& name) const { return result_[name].as<std::string>(); }
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

void check_overrides(const Words& rest) {
  for (const std::string& word : rest) {
    if (word.find('=') != std::string::npos || word.starts_with('~')) continue;
    const std::string near = nearest(word, {"generate", "inspect", "doctor", "tokenize", "report"});
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
    if (mode == "tokenize") return parse_tokenize(options);
    if (mode == "report") return parse_report(options);
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
