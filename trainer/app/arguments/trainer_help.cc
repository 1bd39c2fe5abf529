#include "trainer/app/arguments/mode_parsers.h"

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
         R"(Train a model on text or images, in one process or in many (under ddp-run or torchrun).

Usage: trainer --config FILE [KEY=VALUE ...]
       trainer generate --snapshot FILE --prompt TEXT [OPTIONS]
       trainer eval --snapshot FILE [--data FILE | --suite FILE] [--json]
       trainer predict --snapshot FILE [--text TEXT | --input FILE] [--json]
       trainer export --snapshot FILE --output FOLDER [--format FORMAT] [--dtype TYPE] [--merge]
       trainer estimate --config FILE [KEY=VALUE ...] [--json]
       trainer plan --config FILE --gpus N --memory G [KEY=VALUE ...] [OPTIONS]
       trainer inspect SNAPSHOT [--json]
       trainer report RUN_DIR [RUN_DIR ...] [--output FILE]
       trainer doctor
       trainer tokenize --tokenizer NAME --input FILE [FILE ...] --output FOLDER [OPTIONS]
       trainer data show --config FILE [--rows N] [KEY=VALUE ...]

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

std::string help_estimate() {
  return R"(Estimate what a training run needs before it starts: parameters, memory, tokens, FLOPs.

Usage: trainer estimate --config FILE [KEY=VALUE ...] [OPTIONS]

Examples:
  trainer estimate --config configs/gpt2_train_cfg.yaml
  trainer estimate --config configs/gpt2_train_cfg.yaml trainer_config.batch_size=64 --world_size 8

Options:
  -c, --config FILE     YAML file with the configuration; -cn, -cp and -cd as for training
      --world_size N    Number of ranks of the run (default: 1)
      --vocab_size N    A language model's vocabulary, instead of reading the data. Without data the
                        default is the one that model_type was published with
      --json            Print one JSON object
  -h, --help            Show this help

Memory is the peak of one rank. It fits if all ranks on this machine together need less than is
available now.

Exit codes: 0 done, whether it fits or not, 2 usage or configuration error
)";
}

std::string help_plan() {
  return R"(Compare the ways to divide a training among GPUs, which need not be here: memory of a rank,
communication, time of a step. Prints a table and the first choice as YAML.

Usage: trainer plan --config FILE --gpus N --memory G [KEY=VALUE ...] [OPTIONS]

Examples:
  trainer plan --config configs/gpt2_124m.yaml --gpus 8 --memory 80
  trainer plan --config configs/gpt2_124m.yaml --gpus 16 --nodes 2 --memory 40 --link 12.5
  trainer plan --config configs/quickstart.yaml trainer_config.device=cpu --gpus 2 --memory 4

Required:
  -c, --config FILE   YAML file with the configuration; -cn, -cp and -cd as for training
      --gpus N        GPUs of all nodes together; CPU ranks with trainer_config.device=cpu
      --memory G      Memory of each in GB (1e9 bytes)

Speed (figures that are not given are an H100's, or one core's on CPUs; the output lists them):
      --nodes M       Nodes that the GPUs are divided among (default: 1)
      --link G        GB/s that a GPU sends to one of another node; to one of the only node. trainer
                      doctor measures it with one rank on each of two nodes, or with two on the
                      only one: the rate of the largest all_reduce
      --tflops T      Peak of a GPU in TFLOP/s (default: logging_config.peak_tflops)
      --efficiency S  Share of the peak that computation attains, without communication

Other:
      --vocab_size N  A language model's vocabulary, instead of reading the data. Without data the
                      default is the one that model_type was published with
      --json          Print one JSON object
  -h, --help          Show this help

Memory is the peak of the rank that needs most. "sent" is per rank and step; "batch up to" is the
largest micro-batch that fits.

Exit codes: 0 done, whether anything fits or not, 2 usage or configuration error
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
  return R"(Tokenize text into token files, which training can read whatever their size.

Usage: trainer tokenize --tokenizer NAME --input FILE [FILE ...] --output FOLDER [OPTIONS]

Examples:
  trainer tokenize --tokenizer bpe --train --vocab_size 8192 --input train.txt --output tokens
  trainer tokenize --tokenizer tokens --input valid.txt --output tokens_valid
  trainer tokenize --tokenizer gpt2 --input books/*.txt --output tokens --append_end_of_text

Required:
      --tokenizer NAME      char: the input's characters; byte: its bytes; bpe (GPT-2's) or
                            wordpiece (BERT's): with --train; or a folder with tokenizer.json,
                            with vocab.json and merges.txt, or with vocab.txt
      --input FILE ...      Files of any size: texts, or rows (.jsonl, .json, .csv, .tsv, .parquet),
                            each a document with the end-of-text token after it
      --output FOLDER       Folder for tokens_000000.bin, ... and tokenizer.json

Training a tokenizer:
      --train               Train it on the input (bpe, wordpiece; char always is)
      --vocab_size N        Vocabulary size; of bpe at least 257

Other:
      --append_end_of_text  Put the tokenizer's end-of-text token after each text file (default: no
                            separator)
      --text_column NAME    Column of rows with the text (default: text)
      --on_bad_sample skip  Count rows that cannot be used and leave them out; stop: end at the first
                            (default: stop)
      --overwrite           Replace the output of an earlier run
      --shard_tokens N      Maximum tokens per file (default: 100000000)
      --threads N           Encoding threads (default: one per core)
  -h, --help                Show this help

Exit codes: 0 done, 1 a file could not be read or written, 2 usage error, 128+N killed by signal N
)";
}

std::string help_data() {
  return R"(Show the training data as the model sees them: the first sequences with their tokens, which of them
count in the loss, how long texts are, and what was cut or left out and why. Trains nothing.

Usage: trainer data show --config FILE [--rows N] [KEY=VALUE ...]

Examples:
  trainer data show --config configs/finetune_chat.yaml data_config.path=my-chats.jsonl
  trainer data show --config configs/quickstart.yaml --rows 1

Options:
  -c, --config FILE   YAML file with the configuration; -cn, -cp and -cd as for training
      --rows N        Sequences to show (default: 3)
  -h, --help          Show this help

What counts in the loss is green on a terminal, elsewhere or with NO_COLOR set in brackets: [[...]].
A hidden token of masked_lm is followed by what is to be predicted: [[[MASK]=word]].

Exit codes: 0 done, 2 usage or configuration error, or data that training would refuse
)";
}

std::string help_doctor() {
  return R"(Check this machine: versions, devices, backends, and whether collectives work and how fast.

Usage: trainer doctor [--ranks_per_device N] [--memory_limit_mb M] [--quick] [--json]

Examples:
  trainer doctor
  ddp-run --standalone --nproc_per_node=2 trainer doctor
  ddp-run --standalone --nproc_per_node=4 trainer doctor --ranks_per_device 4

Options:
      --ranks_per_device N  Maximum ranks per device, as distributed_config.ranks_per_device
      --memory_limit_mb M   Memory limit per rank in MiB, as distributed_config.memory_limit_mb
      --quick               Check in seconds, with small collectives; print only what is wrong
      --json                Print one JSON object, for a bug report
  -h, --help                Show this help

Exit codes: 0 all checks passed, 1 a check failed (prints what and how to fix it), 2 usage error
)";
}

std::string help_report() {
  return R"(Write an HTML page about one or several runs: curves of loss, learning rate, throughput and gradient
norm, restarts, configurations and their differences, environment, samples. The page is
self-contained.

Usage: trainer report RUN_DIR [RUN_DIR ...] [--output FILE]

Examples:
  trainer report .
  trainer report runs/lr-3e-4 runs/lr-1e-3 --output compared.html

RUN_DIR is the hydra.run.dir of a run, with its metrics.jsonl.

Options:
      --output FILE  The page (default: report.html)
  -h, --help         Show this help

Exit codes: 0 done, 1 the page cannot be written, 2 usage error
)";
}

}  // namespace ddp::train
