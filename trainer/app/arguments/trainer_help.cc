#include "trainer/app/arguments/trainer_help.h"

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

Exit codes: 0 done, 1 the snapshot cannot be used, 2 usage error or missing file
)";
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
                       of a Llama for transformers, which needs bitsandbytes to load it
      --base FOLDER    The model that the run started from, if it has moved since
  -h, --help           Show this help

Exit codes: 0 done, 1 the snapshot cannot be used or a file cannot be written, 2 usage error or missing file
)text";
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
      --link G        GB/s that a GPU sends to one of another node; to one of the only node
      --doctor FILE   Instead of --link: links as 'trainer doctor --json' has measured them
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
