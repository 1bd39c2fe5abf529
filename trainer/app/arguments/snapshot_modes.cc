// The modes that take a snapshot, generate, eval, predict and export: the page of each, which
// declares its options, and what its arguments mean.
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
  options.sampling.max_new_tokens = kLongAnswer;
  if (parsed.has("system")) options.system = parsed.text("system");
  if (!parsed.has("prompt")) return;
  options.prompt = parsed.text("prompt");
  if (options.prompt.empty())
    throw UserError("--prompt: is empty; give a message, or leave it out");
}

void take_sampling(const Parsed& parsed, SamplingOptions& sampling) {
  sampling.greedy = parsed.has("greedy");
  if (parsed.has("max_new_tokens"))
    sampling.max_new_tokens = parsed.whole_number("max_new_tokens", 0);
  if (parsed.has("temperature") && parsed.number_from_0("temperature") > 0) {
    sampling.temperature = parsed.number_from_0("temperature");
  } else if (parsed.has("temperature")) {
    sampling.greedy = true;  // the limit, as elsewhere
  }
  if (parsed.has("top_k") && parsed.whole_number("top_k", 0) > 0)  // 0: all, as in transformers
    sampling.top_k = parsed.whole_number("top_k", 0);
  if (parsed.has("top_p")) sampling.top_p = parsed.share("top_p", false);
  if (parsed.has("min_p")) sampling.min_p = parsed.share("min_p", true);
  if (parsed.has("repetition_penalty"))
    sampling.repetition_penalty = parsed.positive_number("repetition_penalty");
  if (parsed.has("seed")) sampling.seed = static_cast<uint64_t>(parsed.whole_number("seed", 0));
  if (parsed.has("cuda_graphs"))
    sampling.cuda_graphs = parsed.choice("cuda_graphs", {"false", "true"}) == 1;
}

}  // namespace

std::string help_generate() {
  return R"(Continue text with a trained model. Prints the text, prompt included, to stdout as it is generated,
and the speed to stderr.

Usage: trainer generate --snapshot FILE (--prompt TEXT | --prompt_file FILE) [OPTIONS]
       trainer generate --snapshot FILE --chat [OPTIONS]

Examples:
  trainer generate --snapshot snapshot.pt --prompt "First Citizen:"
  trainer generate --snapshot snapshot.pt --prompt "O God" --top_k 10 --temperature 0.8 --seed 7
  trainer generate --snapshot snapshot.pt --prompt "ROMEO:" --stop "JULIET:" --num_samples 3
  trainer generate --snapshot snapshot.pt --prompt_file prompts.txt --prompt_per_line --json
  trainer generate --snapshot snapshot.pt --chat --system "Be brief."

Required:
      --snapshot FILE         Snapshot, or folder, of a run, or the folder of a transformers model
      --prompt TEXT           Text to continue; or
      --prompt_file FILE      file to read it from; -: standard input. A final newline is dropped

Sampling:
      --max_new_tokens N      Tokens to add (default: 200; with --chat, to each answer: 1024)
      --temperature T         Above 1: more varied, below 1: more predictable; 0: as --greedy
                              (default: 1)
      --top_k K               Sample from the K most likely tokens only (default: all)
      --top_p P               Sample from the fewest tokens whose probabilities add up to P; > 0
                              and <= 1 (default: 1, all)
      --min_p P               Sample from tokens with at least P times the most likely one's
                              probability (default: 0, all)
      --repetition_penalty R  Above 1: tokens already in the text become less likely; > 0
                              (default: 1)
      --stop TEXT             End before this text; may be given several times
      --seed S                Random seed (default: 1337)
      --greedy                Always choose the most likely token

Conversation:
      --chat                  Read one message per line from stdin, print each answer, remember what
                              was said; /reset forgets it, /quit or end of input ends. With
                              --prompt: answer that alone. The model has a chat template
      --system TEXT           System message of the conversation

Several prompts:
      --prompt_per_line       Each line of --prompt_file is a prompt
      --num_samples N         Continuations per prompt (default: 1)
      --batch_size N          Continuations generated at a time (default: 8)
      --json                  One JSON object per line and continuation: prompt_index, sample,
                              prompt, text, tokens, finish_reason (stop or length); with --chat:
                              role, content, tokens, finish_reason

Other:
      --base FOLDER           The model below the snapshot's adapters, if it has moved since
      --device auto|cpu|cuda  Where to compute (default: auto, a GPU if there is one)
      --cuda_graphs true|false
                              On a GPU, replay a token's launches as one (default: true)
  -h, --help                  Show this help

Exit codes: 0 done, 1 the snapshot cannot be used, 2 usage error or missing file, 128+N killed by signal N
)";
}

TrainerArgs parse_generate(const Parsed& parsed) {
  parsed.refuse_rest();
  TrainerArgs args;
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
  take_sampling(parsed, options.sampling);
  options.stops = parsed.texts("stop");
  for (const std::string& stop : options.stops) {
    if (stop.empty()) throw UserError("--stop: is empty; give the text to stop before");
  }
  options.json = parsed.has("json");
  if (parsed.has("num_samples")) options.num_samples = parsed.whole_number("num_samples", 1);
  if (parsed.has("batch_size")) options.batch_size = parsed.whole_number("batch_size", 1);
  options.device = device_choice(parsed);
  return args;
}

std::string help_eval() {
  return R"(Evaluate a snapshot: the loss and the other metrics of its task, of a classifier also the confusion
matrix. Under ddp-run all ranks take part and rank 0 prints.

Usage: trainer eval --snapshot FILE [--data FILE | --suite FILE] [OPTIONS]

Examples:
  trainer eval --snapshot snapshot.pt
  trainer eval --snapshot snapshot.pt --data test.txt --json
  trainer eval --snapshot snapshot.pt --suite hellaswag_val.jsonl
  ddp-run --standalone --nproc_per_node=gpu trainer eval --snapshot snapshot.pt

Options:
      --snapshot FILE         Snapshot, or folder, of a run; with --data or --suite also the folder
                              of a transformers model (required)
      --data FILE             Data to evaluate on, of the kind that the run was trained on: text
                              or token files, a table of texts, images (default: the evaluation
                              data of the run that wrote the snapshot)
      --suite FILE            Multiple-choice questions to a language model, rows of HellaSwag or
                              ARC in a .jsonl file: acc and acc_norm as lm-eval computes them
      --base FOLDER           The model below the snapshot's adapters, if it has moved since
      --batch_size N          Sequences at a time (default: trainer_config.batch_size of the run,
                              8 of a folder, 16 with --suite)
      --device auto|cpu|cuda  Where to compute (default: auto, a GPU if there is one)
      --json                  Print a JSON object
  -h, --help                  Show this help

Exit codes: 0 done, 1 the snapshot cannot be used or its loss is not finite, 2 usage error or missing file
)";
}

TrainerArgs parse_eval(const Parsed& parsed) {
  parsed.refuse_rest();
  parsed.require({"snapshot"});
  TrainerArgs args;
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

std::string help_predict() {
  return R"(Run a trained model on new input: a masked language model fills in the masks of a text, a classifier
labels texts or images.

Usage: trainer predict --snapshot FILE [--text TEXT | --input FILE] [OPTIONS]

Examples:
  trainer predict --snapshot snapshot.pt --text 'The [MASK] ran'
  trainer predict --snapshot snapshot.pt --input digit.png --json
  trainer predict --snapshot snapshot.pt --input scans --output scans.csv
  trainer predict --snapshot snapshot.pt --input reviews.csv --output answers.csv
  trainer predict --snapshot snapshot.pt               # answer each line you type

Options:
      --snapshot FILE         Snapshot, or folder, of a run, or the folder of a transformers model (required)
      --text TEXT             One text
      --text_pair TEXT        Its second text, for a model of pairs
      --input FILE            Instead of --text: images: a PNG or JPEG, a folder of them, or an idx
                              file; texts: a .csv, .tsv or .jsonl file with the run's
                              data_config.text_column; texts with masks: a text file, a text per
                              line. With neither, each line of standard input is a text, or a
                              tab-separated pair
      --output FILE.csv       Write one row per input, in order: input, label (labels, value), all
                              probabilities, the error if it could not be read, and a table's own
                              columns; as tabs or JSON lines to FILE.tsv or FILE.jsonl
      --top N                 Most likely answers to show for each mask (default: 5)
      --device auto|cpu|cuda  Where to compute (default: auto, a GPU if there is one)
      --json                  Print a JSON object; one per line of standard input
  -h, --help                  Show this help

Exit codes: 0 done, 1 the snapshot or an input cannot be used, 2 usage error or missing file
)";
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

std::string help_export() {
  return R"text(Export a snapshot's model for other programs. Prints the names of the files to stdout.

Usage: trainer export --snapshot FILE --output FOLDER [--format FORMAT] [--dtype TYPE] [--merge]

Examples:
  trainer export --snapshot snapshot.pt --output my-gpt2
  python -c "from transformers import pipeline; print(pipeline('text-generation', 'my-gpt2')('O God'))"
  trainer export --snapshot snapshot.pt --output weights --format torch
  trainer export --snapshot lora/snapshot.pt --output my-adapter --format peft
  trainer export --snapshot lora/snapshot.pt --output my-merged-model --merge
  trainer export --snapshot snapshot.pt --output my-model --format gguf --dtype q8_0

Options:
      --snapshot FILE  Snapshot, or folder, of a run, or the folder of a transformers model (required)
      --output FOLDER  Output folder; created if missing (required)
      --format FORMAT  huggingface: a folder that transformers loads with from_pretrained,
                       tokenizer included
                       torch: model.pt, a state dict for torch.load(weights_only=True)
                       safetensors: model.safetensors, the same
                       peft: adapter_config.json and adapter_model.safetensors, of a run
                       with lora.rank
                       gguf: model.gguf, for llama.cpp and the programs built on it
                       snapshot: one file of a sharded snapshot, to train on from
                       (default: huggingface)
      --dtype TYPE     Of the weights: fp32, bf16, fp16 (also f32, f16), or of gguf q8_0, 8 bits
                       (default: that of the model that the run started from, fp32 without one and
                       for peft)
      --merge          Of a run with lora.rank: add the adapters to the model's weights
      --quantize nf4   Write the weights of linear layers in 4 bits, as bitsandbytes does: a folder
                       for transformers, which needs bitsandbytes to load it
      --base FOLDER    The model that the run started from, if it has moved since
  -h, --help           Show this help

Exit codes: 0 done, 1 the snapshot cannot be used or a file cannot be written, 2 usage error or missing file
)text";
}

TrainerArgs parse_export(const Parsed& parsed) {
  parsed.refuse_rest();
  parsed.require({"snapshot", "output"});
  if (parsed.text("output").empty()) throw UserError("--output: is empty; give a folder");
  TrainerArgs args;
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
