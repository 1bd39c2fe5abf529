#include "trainer/app/trainer_help.h"

#include "launcher/worker_contract.h"

namespace ddp::train {
namespace {

std::string exit_codes() {
  std::string text = "\nExit codes:\n";
  for (const auto& meaning : launch::kExitCodeMeanings) {
    if (!meaning.of_trainer) continue;
    std::string name = std::to_string(meaning.code);
    if (meaning.code == launch::kExitSignalBase) name += "+N";
    text += "  " + name + std::string(7 - name.size(), ' ') + meaning.of_trainer + "\n";
  }
  return text;
}

}  // namespace

std::string help_overall() {
  return std::string() +
         R"(Train a GPT on text, in one process or in many (under ddp-run or torchrun).

Usage: trainer --config FILE [KEY=VALUE ...]
       trainer generate --snapshot FILE --prompt TEXT [OPTIONS]
       trainer eval --snapshot FILE [--data FILE] [--json]
       trainer predict --snapshot FILE [--text TEXT | --input FILE] [--json]
       trainer export --snapshot FILE --output FOLDER [--format huggingface|torch|safetensors]
       trainer estimate --config FILE [KEY=VALUE ...] [--json]
       trainer inspect SNAPSHOT [--json]
       trainer report RUN_DIR [RUN_DIR ...] [--output FILE]
       trainer doctor
       trainer tokenize --tokenizer NAME --input FILE [FILE ...] --output FOLDER [OPTIONS]

Examples:
  trainer --config configs/gpt2_train_cfg.yaml
  trainer -c configs/gpt2_train_cfg.yaml trainer_config.batch_size=32 gpt_config.embd_pdrop=0
  ddp-run --standalone --nproc_per_node=gpu trainer --config configs/gpt2_train_cfg.yaml

Options:
  -c, --config FILE        YAML configuration file; docs/config.md lists its keys
  -cn, --config-name NAME  Instead of --config: NAME.yaml in the folder of -cd or -cp (default: .)
  -cp, --config-path DIR   Folder of --config-name
  -cd, --config-dir DIR    Additional folder to search for configurations and groups
  -m, --multirun           Run one job per combination of values: a=1,2 b=range(1,4) c=choice(x,y)
  -h, --help               Show this help, or a mode's: trainer generate --help
      --help-config        Show every key with type, range, default and meaning
      --version            Show the version

Inspecting the configuration (print and exit):
      --cfg job|hydra|all  Print the composed configuration; job omits the hydra block
      --info defaults      Print where each value comes from: file and line, override or default
      --resolve            Replace interpolations with their values
      --format yaml|json   Output format (default: yaml)
  -p, --package A.B        Only that part
      --throw-on-missing   Fail if a value is still ???

KEY=VALUE overrides a value of the file, e.g. trainer_config.max_epochs=3 or
optimizer_config.betas=[0.9,0.99]. Text with special characters needs quotes inside the shell's:
'KEY="a, b"'. Training resumes from trainer_config.snapshot_path if that file exists.
)" + exit_codes();
}

std::string help_generate() {
  return R"(Continue texts with a trained model. Writes only the texts, prompts included, to stdout, as they
are produced; the speed goes to stderr.

Usage: trainer generate --snapshot FILE (--prompt TEXT | --prompt_file FILE) [OPTIONS]

Examples:
  trainer generate --snapshot snapshot.pt --prompt "First Citizen:"
  trainer generate --snapshot snapshot.pt --prompt "O God" --top_k 10 --temperature 0.8 --seed 7
  trainer generate --snapshot snapshot.pt --prompt "ROMEO:" --stop "JULIET:" --num_samples 3
  trainer generate --snapshot snapshot.pt --prompt_file prompts.txt --prompt_per_line --json

Required:
      --snapshot FILE         Snapshot written by training
      --prompt TEXT           Text to continue; or
      --prompt_file FILE      file that holds it; -: standard input. The last line end is left out

Sampling:
      --max_new_tokens N      Tokens to add (default: 200)
      --temperature T         Above 1: more varied, below 1: more predictable; > 0 (default: 1)
      --top_k K               Sample from the K most likely tokens only (default: all)
      --top_p P               Sample from the fewest tokens whose probabilities add up to P; > 0
                              and <= 1 (default: 1, all)
      --min_p P               Sample from tokens with at least P times the most likely one's
                              probability (default: 0, all)
      --repetition_penalty R  Above 1: tokens that the text has already are less likely; > 0
                              (default: 1)
      --stop TEXT             End before this text; may be given several times
      --seed S                Random seed (default: 1337)
      --greedy                Always choose the most likely token

Several texts:
      --prompt_per_line       Each line of --prompt_file is a prompt
      --num_samples N         Continuations of each prompt (default: 1)
      --batch_size N          Continuations at a time (default: 8)
      --json                  One JSON object a line for each continuation: prompt_index, sample,
                              prompt, text, tokens, finish_reason (stop or length)

Other:
      --device auto|cpu|cuda  Where to compute (default: auto, a GPU if there is one)
  -h, --help                  Show this help

Exit codes: 0 done, 1 the snapshot cannot be used, 2 usage error or missing file, 128+N killed by signal N
)";
}

std::string help_eval() {
  return R"(Evaluate a snapshot: loss, perplexity, bits per character, accuracy. Under ddp-run all ranks
take part and rank 0 prints.

Usage: trainer eval --snapshot FILE [--data FILE] [OPTIONS]

Examples:
  trainer eval --snapshot snapshot.pt
  trainer eval --snapshot snapshot.pt --data test.txt --json
  ddp-run --standalone --nproc_per_node=gpu trainer eval --snapshot snapshot.pt

Options:
      --snapshot FILE         Snapshot written by training (required)
      --data FILE             Text or files of tokens to evaluate on, all of it (default: the
                              evaluation part of the snapshot's own run)
      --batch_size N          Sequences at a time (default: trainer_config.batch_size of the run)
      --device auto|cpu|cuda  Where to compute (default: auto, a GPU if there is one)
      --json                  Print a JSON object
  -h, --help                  Show this help

Exit codes: 0 done, 1 the snapshot cannot be used, 2 usage error or missing file
)";
}

std::string help_predict() {
  return R"(Say what a trained model makes of an input: a masked language model fills the masks of a text, a
classifier gives each text or image a label.

Usage: trainer predict --snapshot FILE [--text TEXT | --input FILE] [OPTIONS]

Examples:
  trainer predict --snapshot snapshot.pt --text 'The [MASK] ran'
  trainer predict --snapshot snapshot.pt --input digit.png --json
  trainer predict --snapshot snapshot.pt --input scans --output scans.csv
  trainer predict --snapshot snapshot.pt --input reviews.csv --output answers.csv
  trainer predict --snapshot snapshot.pt               a classifier labels each line that you type

Options:
      --snapshot FILE         Snapshot written by training (required)
      --text TEXT             The text; or
      --input FILE            images: a PNG or JPEG, a folder of them, or an idx file; texts: a .csv,
                              .tsv or .jsonl file with the column data_config.text_column of the run;
                              neither: a text on each line of standard input
      --output FILE.csv       Write input, label and all probabilities there, a row for each input
      --top N                 Answers shown for each mask, the most likely ones (default: 5)
      --device auto|cpu|cuda  Where to compute (default: auto, a GPU if there is one)
      --json                  Print a JSON object; of standard input, one for each line
  -h, --help                  Show this help

Exit codes: 0 done, 1 the snapshot or an input cannot be used, 2 usage error or missing file
)";
}

std::string help_export() {
  return R"text(Write the model of a snapshot as files that other programs read. Their names go to stdout.

Usage: trainer export --snapshot FILE --output FOLDER [--format huggingface|torch|safetensors]

Examples:
  trainer export --snapshot snapshot.pt --output my-gpt2
  python -c "from transformers import pipeline; print(pipeline('text-generation', 'my-gpt2')('O God'))"
  trainer export --snapshot snapshot.pt --output weights --format torch

Options:
      --snapshot FILE  Snapshot written by training (required)
      --output FOLDER  Where to; created where it is missing (required)
      --format FORMAT  huggingface: a folder for transformers' GPT2LMHeadModel or
                       BertForMaskedLM, tokenizer included
                       torch: model.pt, a state dict for torch.load(weights_only=True)
                       safetensors: model.safetensors, the same (default: huggingface)
  -h, --help           Show this help

Exit codes: 0 done, 1 the snapshot cannot be used or a file not be written, 2 usage error or missing file
)text";
}

std::string help_estimate() {
  return R"(Say what a training takes before it runs: parameters, memory, tokens, FLOPs.

Usage: trainer estimate --config FILE [KEY=VALUE ...] [--world_size N] [--json]

Examples:
  trainer estimate --config configs/gpt2_train_cfg.yaml
  trainer estimate --config configs/gpt2_train_cfg.yaml trainer_config.batch_size=64 --world_size 8

Options:
  -c, --config FILE     YAML file with the configuration; -cn, -cp and -cd as for training
      --world_size N    Ranks that the training will have (default: 1)
      --json            One JSON object, for programs
  -h, --help            Show this help

Memory is that of one rank at its largest moment. It fits when all ranks of this machine together
stay below the memory that is available now.

Exit codes: 0 done, whether it fits or not, 2 usage or configuration error
)";
}

std::string help_inspect() {
  return R"(Show a snapshot's contents: step, epoch, parameters, configuration, checksums.

Usage: trainer inspect SNAPSHOT [--json]

Examples:
  trainer inspect snapshot.pt
  trainer inspect snapshot.pt --json

Options:
      --json  Print one JSON object, with each tensor's sha256
  -h, --help  Show this help

Exit codes: 0 done, 1 the snapshot cannot be read, 2 usage error
)";
}

std::string help_tokenize() {
  return R"(Turn texts into files of tokens, which training reads whatever their size.

Usage: trainer tokenize --tokenizer NAME --input FILE [FILE ...] --output FOLDER [OPTIONS]

Examples:
  trainer tokenize --tokenizer bpe --train --vocab_size 8192 --input train.txt --output tokens
  trainer tokenize --tokenizer tokens --input valid.txt --output tokens_valid
  trainer tokenize --tokenizer gpt2 --input books/*.txt --output tokens --append_end_of_text

Required:
      --tokenizer NAME      char: the input's characters; byte: its bytes; bpe (GPT-2's) or
                            wordpiece (BERT's): with --train; or a folder with tokenizer.json,
                            with vocab.json and merges.txt, or with vocab.txt
      --input FILE ...      Texts, read in pieces
      --output FOLDER       Gets tokens_000000.bin and on, then tokenizer.json

Training of a tokenizer:
      --train               Train it on the input (bpe, wordpiece; char always is)
      --vocab_size N        Tokens of the vocabulary, at least 257

Other:
      --append_end_of_text  Put the tokenizer's end-of-text token after each file (default: files
                            follow each other without a sign)
      --overwrite           Replace what an earlier run left in the folder
      --shard_tokens N      Most tokens in one file (default: 100000000)
      --threads N           Threads that encode (default: one for each core)
  -h, --help                Show this page

Exit codes: 0 done, 1 a file could not be read or written, 2 usage error, 128+N ended by signal N
)";
}

std::string help_doctor() {
  return R"(Check this machine: versions, devices, backends, and whether collectives work and how fast.

Usage: trainer doctor [--ranks_per_device N] [--memory_limit_mb M] [--json]

Examples:
  trainer doctor
  ddp-run --standalone --nproc_per_node=2 trainer doctor
  ddp-run --standalone --nproc_per_node=4 trainer doctor --ranks_per_device 4

Options:
      --ranks_per_device N  Most ranks that share a device, as distributed_config.ranks_per_device
      --memory_limit_mb M   Memory of each, MiB, as distributed_config.memory_limit_mb
      --json                Print one JSON object, for a bug report
  -h, --help                Show this help

Exit codes: 0 all checks passed, 1 a check failed (prints what and how to fix it), 2 usage error
)";
}

std::string help_report() {
  return R"(Write one HTML page about one or several runs: loss, learning rate, throughput and gradient
norm as curves, restarts, configuration and its differences, environment, samples. The page needs
no network.

Usage: trainer report RUN_DIR [RUN_DIR ...] [--output FILE]

Examples:
  trainer report .
  trainer report runs/lr-3e-4 runs/lr-1e-3 --output compared.html

RUN_DIR is hydra.run.dir of a run, which holds its metrics.jsonl.

Options:
      --output FILE  The page (default: report.html)
  -h, --help         Show this page

Exit codes: 0 done, 1 the page cannot be written, 2 usage error
)";
}

}  // namespace ddp::train
