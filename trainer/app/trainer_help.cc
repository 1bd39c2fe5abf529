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
         R"(Train a GPT on text, on one process or on many under ddp-run or torchrun.

Usage: trainer --config FILE [KEY=VALUE ...]
       trainer generate --snapshot FILE --prompt TEXT [OPTIONS]
       trainer inspect SNAPSHOT [--json]
       trainer report RUN_DIR [RUN_DIR ...] [--output FILE]
       trainer doctor
       trainer tokenize --tokenizer NAME --input FILE [FILE ...] --output FOLDER [OPTIONS]

Examples:
  trainer --config configs/gpt2_train_cfg.yaml
  trainer -c configs/gpt2_train_cfg.yaml trainer_config.batch_size=32 gpt_config.embd_pdrop=0
  ddp-run --standalone --nproc_per_node=gpu trainer --config configs/gpt2_train_cfg.yaml

Options:
  -c, --config FILE        YAML file with the configuration; docs/config.md lists its keys
  -cn, --config-name NAME  Instead of --config: NAME.yaml in the folder of -cd or -cp (default: .)
  -cp, --config-path DIR   Folder of --config-name
  -cd, --config-dir DIR    One more folder to look for configurations and groups in
  -m, --multirun           One job for each combination of values: a=1,2 b=range(1,4) c=choice(x,y)
  -h, --help               Show this page, or that of a mode: trainer generate --help
      --help-config        Show every key with type, range, default and meaning
      --version            Show the version

Looking at the configuration (prints and exits):
      --cfg job|hydra|all  The composed configuration; job leaves the hydra block out
      --info defaults      Where each value comes from: file and line, override or default
      --resolve            Replace interpolations by their values
      --format yaml|json   Form of the text (default: yaml)
  -p, --package A.B        Only that part
      --throw-on-missing   A value that is still ??? is an error

KEY=VALUE overrides a value of the file, e.g. trainer_config.max_epochs=3 or
optimizer_config.betas=[0.9,0.99]; quote a text with special characters twice: 'KEY="a, b"'.
Training resumes from trainer_config.snapshot_path when that file is there.
)" + exit_codes();
}

std::string help_generate() {
  return R"(Continue a text with a trained model. The text alone goes to stdout, prompt included.

Usage: trainer generate --snapshot FILE --prompt TEXT [OPTIONS]

Examples:
  trainer generate --snapshot snapshot.pt --prompt "First Citizen:"
  trainer generate --snapshot snapshot.pt --prompt "O God" --top_k 10 --temperature 0.8 --seed 7
  trainer generate --snapshot snapshot.pt --prompt "O God" --greedy --max_new_tokens 50

Required:
      --snapshot FILE       Snapshot that training has written
      --prompt TEXT         Text to continue

Sampling:
      --max_new_tokens N    Tokens to add (default: 200)
      --temperature T       Above 1 more varied, below 1 more certain; > 0 (default: 1)
      --top_k K             Choose among the K likeliest tokens only (default: all)
      --seed S              Start of the random numbers (default: 1337)
      --greedy              Always take the likeliest token

Other:
  -h, --help                Show this page

Exit codes: 0 done, 1 the snapshot cannot be used, 2 usage error, 128+N ended by signal N
)";
}

std::string help_inspect() {
  return R"(Show what a snapshot holds: step, epoch, parameters, configuration, checksums.

Usage: trainer inspect SNAPSHOT [--json]

Examples:
  trainer inspect snapshot.pt
  trainer inspect snapshot.pt --json

Options:
      --json  One JSON object with the sha256 of each tensor, for programs
  -h, --help  Show this page

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
      --tokenizer NAME      char: the input's characters; byte: its bytes; bpe: with --train; or a
                            folder with tokenizer.json, or with vocab.json and merges.txt
      --input FILE ...      Texts, read in pieces
      --output FOLDER       Gets tokens_000000.bin and on, then tokenizer.json

Training of a tokenizer:
      --train               Train it on the input (bpe; char always is)
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

Usage: trainer doctor

Examples:
  trainer doctor
  ddp-run --standalone --nproc_per_node=2 trainer doctor

Options:
  -h, --help  Show this page

Exit codes: 0 all well, 1 something is wrong (it says what and how to mend it), 2 usage error
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
