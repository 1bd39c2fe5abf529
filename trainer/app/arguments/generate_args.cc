// The arguments of generate, eval and export.
#include <fmt/format.h>

#include "trainer/app/arguments/mode_parsers.h"
#include "trainer/app/arguments/parsed_options.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

std::string base_of(const Parsed& parsed) {
  if (!parsed.has("base")) return "";
  if (!parsed.text("base").empty()) return parsed.text("base");
  throw UserError("--base: is empty; give the folder of the model that the run started from");
}

DeviceChoice device_choice(const Parsed& parsed) {
  if (!parsed.has("device")) return DeviceChoice::kAuto;
  return static_cast<DeviceChoice>(parsed.choice("device", {"auto", "cpu", "cuda"}));
}

/// Either --prompt or --prompt_file.
void take_prompt(const Parsed& parsed, GenerateArgs& options) {
  if (!parsed.has("prompt_file")) parsed.require({"prompt"});
  if (parsed.has("prompt") && parsed.has("prompt_file"))
    throw UserError("--prompt_file: conflicts with --prompt; keep one");
  options.prompt_per_line = parsed.has("prompt_per_line");
  if (options.prompt_per_line && !parsed.has("prompt_file"))
    throw UserError("--prompt_per_line: belongs to --prompt_file; give that or leave it out");
  if (parsed.has("prompt")) options.prompt = parsed.text("prompt");
  if (parsed.has("prompt_file")) options.prompt_file = parsed.text("prompt_file");
}

/// Instead: what belongs to a conversation.
void take_chat(const Parsed& parsed, GenerateArgs& options) {
  constexpr int64_t kLongAnswer = 1024;  // one that does not end is interrupted by who reads it
  for (const char* name : {"prompt_file", "prompt_per_line", "num_samples", "batch_size"}) {
    if (parsed.has(name))
      throw UserError(
          fmt::format("--{}: conflicts with --chat, which reads one message per line "
                      "from standard input; remove it",
                      name));
  }
  options.chat = true;
  options.max_new_tokens = kLongAnswer;
  if (parsed.has("system")) options.system = parsed.text("system");
  if (!parsed.has("prompt")) return;
  options.prompt = parsed.text("prompt");
  if (options.prompt.empty())
    throw UserError("--prompt: is empty; give a message, or leave it out");
}

void take_sampling(const Parsed& parsed, GenerateArgs& options) {
  options.greedy = parsed.has("greedy");
  if (parsed.has("max_new_tokens"))
    options.max_new_tokens = parsed.whole_number("max_new_tokens", 0);
  if (parsed.has("temperature") && parsed.number_from_0("temperature") > 0) {
    options.temperature = parsed.number_from_0("temperature");
  } else if (parsed.has("temperature")) {
    options.greedy = true;  // the limit, as elsewhere
  }
  if (parsed.has("top_k")) options.top_k = parsed.whole_number("top_k", 1);
  if (parsed.has("top_p")) options.top_p = parsed.share("top_p", false);
  if (parsed.has("min_p")) options.min_p = parsed.share("min_p", true);
  if (parsed.has("repetition_penalty"))
    options.repetition_penalty = parsed.positive_number("repetition_penalty");
  if (parsed.has("seed")) options.seed = parsed.whole_number("seed", 0);
  options.stops = parsed.texts("stop");
  for (const std::string& stop : options.stops) {
    if (stop.empty()) throw UserError("--stop: is empty; give the text to stop before");
  }
}

}  // namespace

TrainerArgs parse_generate(const Parsed& parsed) {
  parsed.refuse_rest();
  TrainerArgs args;
  args.mode = Mode::kGenerate;
  parsed.require({"snapshot"});
  GenerateArgs& options = args.generate;
  options.snapshot = parsed.text("snapshot");
  options.base = base_of(parsed);
  if (parsed.has("system") && !parsed.has("chat"))
    throw UserError("--system: belongs to --chat; add that or remove it");
  if (parsed.has("chat")) {
    take_chat(parsed, options);
  } else {
    take_prompt(parsed, options);
  }
  take_sampling(parsed, options);
  options.json = parsed.has("json");
  if (parsed.has("num_samples")) options.num_samples = parsed.whole_number("num_samples", 1);
  if (parsed.has("batch_size")) options.batch_size = parsed.whole_number("batch_size", 1);
  options.device = device_choice(parsed);
  options.cuda_graphs =
      !parsed.has("cuda_graphs") || parsed.choice("cuda_graphs", {"false", "true"}) == 1;
  return args;
}

TrainerArgs parse_eval(const Parsed& parsed) {
  parsed.refuse_rest();
  parsed.require({"snapshot"});
  TrainerArgs args;
  args.mode = Mode::kEval;
  EvalArgs& options = args.eval;
  options.snapshot = parsed.text("snapshot");
  options.base = base_of(parsed);
  if (parsed.has("data")) options.data = parsed.text("data");
  if (parsed.has("suite")) options.suite = parsed.text("suite");
  if (parsed.has("suite") && (parsed.has("data") || options.suite.empty()))
    throw UserError(options.suite.empty() ? "--suite: is empty; give a file"
                                          : "--suite: conflicts with --data; keep one");
  if (parsed.has("batch_size")) options.batch_size = parsed.whole_number("batch_size", 1);
  options.device = device_choice(parsed);
  options.json = parsed.has("json");
  return args;
}

TrainerArgs parse_predict(const Parsed& parsed) {
  parsed.refuse_rest();
  parsed.require({"snapshot"});
  if (parsed.has("input") && parsed.has("text"))
    throw UserError("--input: conflicts with --text; keep one");
  if (parsed.has("text") && parsed.text("text").empty())
    throw UserError("--text: is empty; give a text");
  if (parsed.has("text_pair") && (!parsed.has("text") || parsed.text("text_pair").empty()))
    throw UserError("--text_pair: is the second text of a pair; give both, and --text");
  if (parsed.has("input") && parsed.text("input").empty())
    throw UserError("--input: is empty; give a file or a folder");
  if (parsed.has("output") && parsed.has("json"))
    throw UserError("--output: conflicts with --json, which prints to stdout; keep one");
  TrainerArgs args;
  args.mode = Mode::kPredict;
  PredictArgs& options = args.predict;
  options.snapshot = parsed.text("snapshot");
  if (parsed.has("text")) options.text = parsed.text("text");
  if (parsed.has("text_pair")) options.text_pair = parsed.text("text_pair");
  if (parsed.has("input")) options.input = parsed.text("input");
  if (parsed.has("output")) options.output = parsed.text("output");
  if (parsed.has("top")) options.top = parsed.whole_number("top", 1);
  options.device = device_choice(parsed);
  options.json = parsed.has("json");
  return args;
}

TrainerArgs parse_export(const Parsed& parsed) {
  parsed.refuse_rest();
  parsed.require({"snapshot", "output"});
  TrainerArgs args;
  args.mode = Mode::kExport;
  args.exporting.snapshot = parsed.text("snapshot");
  args.exporting.output = parsed.text("output");
  args.exporting.base = base_of(parsed);
  if (parsed.has("dtype")) {
    constexpr ExportDtype kTypes[] = {ExportDtype::kFloat32, ExportDtype::kBFloat16,
                                      ExportDtype::kFloat16, ExportDtype::kQ8_0,
                                      ExportDtype::kFloat32, ExportDtype::kFloat16};
    args.exporting.dtype =
        kTypes[parsed.choice("dtype", {"fp32", "bf16", "fp16", "q8_0", "f32", "f16"})];
  }
  if (parsed.has("format")) {
    const auto format = parsed.choice(
        "format", {"huggingface", "torch", "safetensors", "peft", "gguf", "snapshot"});
    args.exporting.whole_snapshot = format == 5;
    if (!args.exporting.whole_snapshot) args.exporting.format = static_cast<ExportFormat>(format);
  }
  args.exporting.merge = parsed.has("merge");
  if (parsed.has("quantize")) args.exporting.to_nf4 = parsed.choice("quantize", {"nf4"}) == 0;
  return args;
}

}  // namespace ddp::train
