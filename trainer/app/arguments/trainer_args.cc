#include "trainer/app/arguments/trainer_args.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/app/arguments/mode_parsers.h"
#include "trainer/app/arguments/parsed_options.h"
#include "trainer/config/keys/trainer_keys.h"
#include "trainer/config/show/key_reference.h"
#include "trainer/hydra/compose/sweep_plan.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

TrainerArgs help_args(std::string text) {
  TrainerArgs args;
  args.mode = Mode::kHelp;
  args.help_text = std::move(text);
  return args;
}

TrainerArgs parse_inspect(const Parsed& parsed) {
  if (parsed.rest().empty())
    throw UserError("inspect: no snapshot given; write trainer inspect SNAPSHOT");
  parsed.refuse_rest(1);
  TrainerArgs args;
  args.inspect_snapshot = parsed.rest().front();
  args.inspect_json = parsed.has("json");
  return args;
}

TrainerArgs parse_doctor(const Parsed& parsed) {
  parsed.refuse_rest();
  TrainerArgs args;
  args.doctor_json = parsed.has("json");
  args.doctor_quick = parsed.has("quick");
  if (parsed.has("ranks_per_device"))
    args.doctor_group.ranks_per_device = parsed.whole_number("ranks_per_device", 1);
  if (parsed.has("memory_limit_mb"))
    args.doctor_group.memory_limit_mb = parsed.whole_number("memory_limit_mb", 1);
  return args;
}

bool is_trained(const std::string& tokenizer) {
  return tokenizer == "bpe" || tokenizer == "wordpiece";
}

/// What belongs to --train, and what --tokenizer needs of it.
void take_training(const Parsed& parsed, TokenizeArgs& options) {
  options.train = parsed.has("train");
  // BPE has a token for each byte; how many characters a WordPiece needs, the input tells.
  const int64_t least = options.tokenizer == "wordpiece" ? 1 : 257;
  if (parsed.has("vocab_size")) options.vocab_size = parsed.whole_number("vocab_size", least);
  const bool trainable = is_trained(options.tokenizer);
  if (trainable && (!options.train || options.vocab_size == 0)) {
    throw UserError(
        fmt::format("--tokenizer: {} is trained on the input; add --train --vocab_size N, or name "
                    "the folder of one that is trained",
                    options.tokenizer));
  }
  if (options.vocab_size != 0 && !trainable)
    throw UserError(
        "--vocab_size: belongs to --tokenizer bpe or wordpiece with --train; leave it out");
  if (options.train && !trainable && options.tokenizer != "char")
    throw UserError(
        fmt::format("--train: {} is not trained; leave it out, or write --tokenizer bpe",
                    shown(options.tokenizer)));
}

/// --tokenizer NAME, or NAME after --train. `inputs`: the positional words, without NAME then.
std::string take_tokenizer(const Parsed& parsed, Words& inputs) {
  if (parsed.has("tokenizer")) return parsed.text("tokenizer");
  const auto named = std::find_if(inputs.begin(), inputs.end(), is_trained);
  if (!parsed.has("train") || named == inputs.end()) return "";
  std::string name = *named;
  inputs.erase(named);
  return name;
}

TrainerArgs parse_tokenize(const Parsed& parsed) {
  TrainerArgs args;
  Words inputs = parsed.rest();
  TokenizeArgs& options = args.tokenize;
  options.tokenizer = take_tokenizer(parsed, inputs);
  for (const char* name : {"tokenizer", "input", "output"}) {
    const bool given = name == std::string("tokenizer")
                           ? !options.tokenizer.empty()
                           : parsed.has(name) && !parsed.text(name).empty();
    if (!given)
      throw UserError(fmt::format("--{}: is required; see trainer tokenize --help", name));
  }
  if (parsed.times("input") > 1)
    throw UserError("--input: given twice; write all files after one --input");
  options.inputs = {parsed.text("input")};
  options.inputs.insert(options.inputs.end(), inputs.begin(), inputs.end());
  options.output = parsed.text("output");
  options.append_end_of_text = parsed.has("append_end_of_text");
  if (parsed.has("text_column")) options.text_column = parsed.text("text_column");
  if (parsed.has("on_bad_sample"))
    options.skip_bad_rows = parsed.choice("on_bad_sample", {"stop", "skip"}) == 1;
  options.overwrite = parsed.has("overwrite");
  if (parsed.has("shard_tokens")) options.shard_tokens = parsed.whole_number("shard_tokens", 1);
  if (parsed.has("threads")) options.threads = parsed.whole_number("threads", 1);
  take_training(parsed, options);
  return args;
}

TrainerArgs parse_report(const Parsed& parsed) {
  if (parsed.rest().empty()) {
    throw UserError(
        "report: needs the folder of a run; write trainer report RUN_DIR --output FILE.html");
  }
  TrainerArgs args;
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
    if (word == "train") fix = "omit 'train': training is what trainer does without a mode";
    if (word.ends_with(".yaml") || word.ends_with(".yml"))
      fix = "did you mean --config " + word + "?";
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
  if (parsed.times("config") > 1)
    throw UserError("--config: given twice; keep one, which can name others in its defaults list");
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

ShowOptions show_options(const Parsed& parsed) {
  ShowOptions options;
  options.what = static_cast<ShowWhat>(parsed.choice("cfg", {"job", "hydra", "all"}));
  if (parsed.has("format") && parsed.choice("format", {"yaml", "json"}) == 1)
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
  if (parsed.has("info")) parsed.choice("info", {"defaults"});
  if (parsed.has("cfg")) args.show = show_options(parsed);
}

void take_vocab_size(const Parsed& parsed, TrainerArgs& args) {
  constexpr int64_t kMost = 100'000'000;
  if (!parsed.has("vocab_size")) return;
  args.vocab_size = parsed.whole_number("vocab_size", 1);
  if (*args.vocab_size > kMost)
    throw UserError(
        fmt::format("--vocab_size: {} is more than {}; give fewer", *args.vocab_size, kMost));
}

/// What every mode with a configuration takes.
TrainerArgs args_with_config(const Parsed& parsed, Words overrides) {
  check_overrides(overrides);
  TrainerArgs args;
  args.config = config_source(parsed);
  args.overrides = std::move(overrides);
  return args;
}

int64_t rank_count(const Parsed& parsed, const char* name) {
  constexpr int64_t kMost = 1'000'000;
  const int64_t count = parsed.whole_number(name, 1);
  if (count > kMost)
    throw UserError(fmt::format("--{}: {} is more than {}; give fewer", name, count, kMost));
  return count;
}

TrainerArgs parse_estimate(const Parsed& parsed) {
  TrainerArgs args = args_with_config(parsed, parsed.rest());
  args.estimate.json = parsed.has("json");
  if (parsed.has("world_size")) args.estimate.world_size = rank_count(parsed, "world_size");
  take_vocab_size(parsed, args);
  return args;
}

TrainerArgs parse_data(const Parsed& parsed) {
  Words overrides = parsed.rest();
  if (overrides.empty() || overrides.front() != "show")
    throw UserError("data: write trainer data show --config FILE [--rows N]");
  overrides.erase(overrides.begin());
  TrainerArgs args = args_with_config(parsed, std::move(overrides));
  if (parsed.has("rows")) args.data_rows = parsed.whole_number("rows", 0);
  return args;
}

/// --gpus, --memory and what describes their speed.
PlanArgs plan_options(const Parsed& parsed) {
  parsed.require({"gpus", "memory"});
  const auto number = [&parsed](const char* name) -> std::optional<double> {
    if (!parsed.has(name)) return std::nullopt;
    return parsed.positive_number(name);
  };
  PlanArgs options;
  options.gpus = rank_count(parsed, "gpus");
  if (parsed.has("nodes")) options.nodes = parsed.whole_number("nodes", 1);
  options.memory_gb = parsed.positive_number("memory");
  options.link_gb_s = number("link");
  options.tflops = number("tflops");
  if (parsed.has("efficiency")) options.efficiency = parsed.share("efficiency", false);
  options.json = parsed.has("json");
  return options;
}

TrainerArgs parse_plan(const Parsed& parsed) {
  TrainerArgs args = args_with_config(parsed, parsed.rest());
  args.plan = plan_options(parsed);
  take_vocab_size(parsed, args);
  return args;
}

TrainerArgs help_config(const Parsed& parsed) {
  constexpr std::string (*kPages[])() = {config_reference_text, config_schema_json,
                                         config_reference_markdown};
  const std::size_t page =
      parsed.has("format") ? parsed.choice("format", {"text", "json", "markdown"}) : 0;
  return help_args(kPages[page]());
}

TrainerArgs parse_train(const Parsed& parsed) {
  if (parsed.has("help_config")) return help_config(parsed);
  if (parsed.has("version")) {
    TrainerArgs args;
    args.mode = Mode::kVersion;
    return args;
  }
  TrainerArgs args = args_with_config(parsed, parsed.rest());
  args.multirun = parsed.has("multirun");
  take_show_options(parsed, args);
  return args;
}

struct Subcommand {
  const char* name;
  Mode mode;
  TrainerArgs (*parse)(const Parsed& parsed);
  std::string (*help)();
};
constexpr Subcommand kModes[] = {{"generate", Mode::kGenerate, parse_generate, help_generate},
                                 {"eval", Mode::kEval, parse_eval, help_eval},
                                 {"predict", Mode::kPredict, parse_predict, help_predict},
                                 {"export", Mode::kExport, parse_export, help_export},
                                 {"estimate", Mode::kEstimate, parse_estimate, help_estimate},
                                 {"plan", Mode::kPlan, parse_plan, help_plan},
                                 {"inspect", Mode::kInspect, parse_inspect, help_inspect},
                                 {"doctor", Mode::kDoctor, parse_doctor, help_doctor},
                                 {"tokenize", Mode::kTokenize, parse_tokenize, help_tokenize},
                                 {"report", Mode::kReport, parse_report, help_report},
                                 {"data", Mode::kDataShow, parse_data, help_data}};
constexpr Subcommand kTraining = {"", Mode::kTrain, parse_train, help_overall};

Words mode_names() {
  Words names;
  for (const Subcommand& mode : kModes) names.emplace_back(mode.name);
  return names;
}

}  // namespace

TrainerArgs parse_trainer_args(int argc, const char* const* argv) {
  Words words(argv + std::min(argc, 1), argv + argc);
  const auto* mode = std::find_if(std::begin(kModes), std::end(kModes), [&](const auto& each) {
    return !words.empty() && words.front() == each.name;
  });
  const bool trains = mode == std::end(kModes);
  if (trains) mode = &kTraining;
  if (!trains) words.erase(words.begin());
  try {
    const Parsed parsed(words, mode->help(),
                        fmt::format("trainer {}{}--help", mode->name, trains ? "" : " "));
    if (parsed.has("help")) return help_args(mode->help());
    TrainerArgs args = mode->parse(parsed);
    if (!trains) args.mode = mode->mode;
    return args;
  } catch (const cxxopts::exceptions::exception& e) {
    throw UserError(fmt::format("{}; see trainer --help", e.what()));
  }
}

std::string show_text(const TrainerArgs& args) {
  if (args.show_origins) return show_origins(args.config, args.overrides);
  const bool sweeps = args.multirun || asks_for_sweep(args.config, args.overrides, trainer_keys());
  return sweeps ? show_sweep(args.config, args.overrides, args.show)
                : show_config(args.config, args.overrides, args.show);
}

}  // namespace ddp::train
