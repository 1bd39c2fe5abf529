#include "trainer/config/keys/key_table.h"

#include <algorithm>

#include "trainer/config/keys/key_rows.h"

namespace ddp::train {
namespace {

std::vector<Field> task_fields() {
  return {{"task", DDP_MEMBER(task), kAnyValue, NullMeans::kError, "", "", "What to train."}};
}

std::vector<Field> data_fields() {
  return {
      {"data_config.path", DDP_MEMBER(data.path), kAnyValue, NullMeans::kError, "required", "",
       "What to train on: a text file (UTF-8), a file of tokens, a glob or a folder of such files. "
       "A relative path starts at the current directory."},
      {"data_config.format", DDP_MEMBER(data.format), kAnyValue, NullMeans::kError, "", "",
       "auto: .bin files hold tokens, all others text. docs/data.md has the layouts."},
      {"data_config.tokenizer", DDP_MEMBER(data.tokenizer), kAnyValue, NullMeans::kNotGiven,
       "char for text, the folder's own for tokens", "",
       "char, byte, or a folder that trainer tokenize has written, or with vocab.json and "
       "merges.txt."},
      {"data_config.eval_path", DDP_MEMBER(data.eval_path), kAnyValue, NullMeans::kNotGiven,
       "a part of path: train_split", "",
       "Files to evaluate on, as path; all of path is for training then."},
      {"data_config.test_path", DDP_MEMBER(data.test_path), kAnyValue, NullMeans::kNotGiven, "none",
       "", "Files to evaluate on once, when training has ended, as eval_path."},
      {"data_config.block_size", DDP_MEMBER(data.block_size), kUpTo1e6, NullMeans::kError, "",
       "tokens", "Context length: tokens per input sequence."},
      {"data_config.train_split", DDP_MEMBER(data.train_split), kShare, NullMeans::kError, "",
       "share",
       "Leading share of the text to train on; the rest is for evaluation. 1: no "
       "evaluation. Unused with eval_path."},
      {"data_config.truncate", DDP_MEMBER(data.truncate), kShare, NullMeans::kError, "", "share",
       "Leading share of the text to use; 1: all of it."},
      {"data_config.stride", DDP_MEMBER(data.stride), kUpTo1e9, NullMeans::kError, "", "tokens",
       "Distance between the starts of consecutive training sequences; 1: every position; auto: "
       "half "
       "of block_size, less where an epoch would have fewer than 512 sequences."},
      {"data_config.on_bad_sample", DDP_MEMBER(data.on_bad_sample), kAnyValue, NullMeans::kError,
       "", "",
       "A sample that cannot be used, such as a broken image or an empty text: skip leaves it out, "
       "names and counts it; stop ends the run."},
      {"data_config.text_column", DDP_MEMBER(data.text_column), kAnyValue, NullMeans::kError, "",
       "", "Column of a table, or name in its JSON objects, that holds the texts."},
      {"data_config.label_column", DDP_MEMBER(data.label_column), kAnyValue, NullMeans::kError, "",
       "", "And the one that holds their labels."},
      {"data_config.bucket_batches", DDP_MEMBER(data.bucket_batches), Range{0, 1e4},
       NullMeans::kOff, "", "micro-batches",
       "So many micro-batches at a time are made of samples that are sorted by length, so that "
       "less of them is padding; 0: samples come in random order."},
      {"data_config.min_characters", DDP_MEMBER(data.min_characters), Range{0, 1e9},
       NullMeans::kError, "", "characters", "Shorter lines are left out; 0: none."},
      {"data_config.mask_share", DDP_MEMBER(data.mask_share), kShare, NullMeans::kError, "",
       "share",
       "Share of a line's tokens to predict, one at least: 80 % of them become [MASK], 10 % a "
       "random token, 10 % stay."},
  };
}

std::vector<Field> gpt_fields() {
  return {
      {"gpt_config.model_type", DDP_MEMBER(gpt.model_type), kAnyValue, NullMeans::kNotGiven,
       "gpt2 when no sizes are given", "",
       "Size preset: openai-gpt, gpt2, gpt2-medium, gpt2-large, gpt2-xl, gopher-44m, gpt-mini, "
       "gpt-micro or gpt-nano. "
       "Set either this or the three sizes."},
      {"gpt_config.n_layer", DDP_MEMBER(gpt.n_layer), kUpTo1e4, NullMeans::kNotGiven,
       "from model_type", "", "Number of transformer blocks."},
      {"gpt_config.n_head", DDP_MEMBER(gpt.n_head), kUpTo1e4, NullMeans::kNotGiven,
       "from model_type", "", "Attention heads per block; must divide n_embd."},
      {"gpt_config.n_embd", DDP_MEMBER(gpt.n_embd), kUpTo1e6, NullMeans::kNotGiven,
       "from model_type", "", "Model width (embedding size)."},
      {"gpt_config.embd_pdrop", DDP_MEMBER(gpt.embd_pdrop), kProbability, NullMeans::kError, "",
       "probability", "Dropout after the embeddings."},
      {"gpt_config.resid_pdrop", DDP_MEMBER(gpt.resid_pdrop), kProbability, NullMeans::kError, "",
       "probability", "Dropout before each residual addition."},
      {"gpt_config.attn_pdrop", DDP_MEMBER(gpt.attn_pdrop), kProbability, NullMeans::kError, "",
       "probability", "Dropout on the attention weights."},
      {"gpt_config.activation", DDP_MEMBER(gpt.activation), kAnyValue, NullMeans::kError, "", "",
       "gelu is exact; gelu_tanh (also gelu_new) is GPT-2's approximation."},
      {"gpt_config.tie_weights", DDP_MEMBER(gpt.tie_weights), kAnyValue, NullMeans::kError, "", "",
       "Share the token embedding's matrix with the output layer."},
      {"gpt_config.init_from", DDP_MEMBER(gpt.init_from), kAnyValue, NullMeans::kNotGiven, "", "",
       "Folder with config.json and model.safetensors of a GPT-2, as transformers writes it, whose "
       "weights training starts from; sizes, activation and tie_weights follow it where they are "
       "not given."},
      {"gpt_config.activation_checkpointing", DDP_MEMBER(gpt.activation_checkpointing), kAnyValue,
       NullMeans::kOff, "", "",
       "Keeps only the input of each block and computes the rest again in the backward pass "
       "(transformers: gradient_checkpointing): less memory, about a third more time."},
      {"gpt_config.loss_chunk_size", DDP_MEMBER(gpt.loss_chunk_size), kStepCountOr0,
       NullMeans::kOff, "", "tokens",
       "Tokens whose logits are in memory at a time in the loss; auto: as many as take 256 MiB; 0 "
       "or null: all."},
      {"gpt_config.pad_vocab_to_multiple_of", DDP_MEMBER(gpt.pad_vocab_to_multiple_of),
       kStepCountOr0, NullMeans::kOff, "", "tokens",
       "In the loss, compute logits for so many tokens that their number is a multiple of this, "
       "and leave out what is not in the vocabulary; parameters and files are as without. auto: 64 "
       "on a GPU, else off; 0 or null: off."},
      {"gpt_config.fused_cpu_kernels", DDP_MEMBER(gpt.fused_cpu_kernels), kAnyValue,
       NullMeans::kError, "", "",
       "On a CPU, use trainer's own attention, dropout and GELU, each in one pass; false: torch's, "
       "which are slower, sum in another order and draw other dropout masks."},
  };
}

std::vector<Field> trainer_fields() {
  return {
      {"trainer_config.max_epochs", DDP_MEMBER(trainer.max_epochs), kUpTo1e9, NullMeans::kError,
       "10; unlimited when max_steps is given alone", "epochs", "Passes over the training text."},
      {"trainer_config.max_steps", DDP_MEMBER(trainer.max_steps), kStepCount, NullMeans::kNotGiven,
       "", "steps", "Stop after this many optimizer steps, even mid-epoch."},
      {"trainer_config.batch_size", DDP_MEMBER(trainer.batch_size), kUpTo1e6, NullMeans::kError, "",
       "sequences", "Sequences per rank and micro-batch."},
      {"trainer_config.grad_accumulation_steps", DDP_MEMBER(trainer.grad_accumulation_steps),
       kUpTo1e6, NullMeans::kError, "", "", "Micro-batches per optimizer step and rank."},
      {"trainer_config.global_batch_size", DDP_MEMBER(trainer.global_batch_size), kUpTo1e9,
       NullMeans::kNotGiven, "", "sequences",
       "Sequences per optimizer step over all ranks; replaces grad_accumulation_steps and must be "
       "a multiple of batch_size. If unset, a resumed run keeps its snapshot's."},
      {"trainer_config.data_loader_workers", DDP_MEMBER(trainer.data_loader_workers), Range{0, 256},
       NullMeans::kError, "", "threads",
       "Data loader threads per rank; 0: load in the training thread."},
      {"trainer_config.grad_norm_clip", DDP_MEMBER(trainer.grad_norm_clip), kAtLeast0,
       NullMeans::kOff, "", "", "Clip gradients to this global L2 norm; 0 or null: no clipping."},
      {"trainer_config.snapshot_path", DDP_MEMBER(trainer.snapshot_path), kAnyValue,
       NullMeans::kError, "", "",
       "File to save training state to and resume from. Relative paths start at the current "
       "directory."},
      {"trainer_config.save_every", DDP_MEMBER(trainer.save_every), kUpTo1e9, NullMeans::kError, "",
       "epochs", "Epochs between snapshots; one is always written at the end."},
      {"trainer_config.save_every_steps", DDP_MEMBER(trainer.save_every_steps), kStepCount,
       NullMeans::kNotGiven, "", "steps", "Optimizer steps between additional snapshots."},
      {"trainer_config.snapshot_every", DDP_MEMBER(trainer.snapshot_every), kStepCountOr0,
       NullMeans::kOff, "", "steps",
       "Steps between crash-recovery snapshots; auto: as often as the four keys below allow; 0 or "
       "null: none."},
      {"trainer_config.snapshot_overhead", DDP_MEMBER(trainer.snapshot_overhead), kShare,
       NullMeans::kError, "", "share",
       "Share of training time that snapshot_every: auto may cost."},
      {"trainer_config.snapshot_min_interval_s", DDP_MEMBER(trainer.snapshot_min_interval_s),
       kAtLeast0, NullMeans::kOff, "", "seconds",
       "Minimum time between snapshots of snapshot_every: auto; a crash loses half of it on "
       "average. 0 or null: no minimum."},
      {"trainer_config.snapshot_disk_share", DDP_MEMBER(trainer.snapshot_disk_share), kShare,
       NullMeans::kError, "", "share",
       "Share of the time that snapshot_every: auto may keep the disk busy."},
      {"trainer_config.snapshot_gb_per_hour", DDP_MEMBER(trainer.snapshot_gb_per_hour), kAtLeast0,
       NullMeans::kOff, "", "GB/h",
       "Write limit for snapshot_every: auto; 40 is about 1 TB a day. 0 or null: no limit."},
      {"trainer_config.snapshot_if_busy", DDP_MEMBER(trainer.snapshot_if_busy), kAnyValue,
       NullMeans::kError, "", "",
       "What to do when a snapshot is due while the previous one is still being written."},
      {"trainer_config.save_total_limit", DDP_MEMBER(trainer.save_total_limit), kUpTo1e4,
       NullMeans::kError, "", "files",
       "Snapshots to keep, including the newest; older ones are deleted. The one with the best "
       "evaluation loss is kept in addition."},
      {"trainer_config.snapshot_cache", DDP_MEMBER(trainer.snapshot_cache), kAnyValue,
       NullMeans::kError, "", "",
       "Local directory for snapshots when snapshot_path is remote (s3://bucket/key, "
       "gs://bucket/key)."},
      {"trainer_config.ram_snapshots", DDP_MEMBER(trainer.ram_snapshots), kAnyValue,
       NullMeans::kOff, "", "",
       "Copy the state to shared memory after each step, so that a restart by ddp-run loses at "
       "most one. Needs twice the snapshot's size in /dev/shm."},
      {"trainer_config.log_every_steps", DDP_MEMBER(trainer.log_every_steps), kStepCount,
       NullMeans::kError, "", "steps",
       "Steps between log lines (loss, learning rate, gradient norm, tokens/s)."},
      {"trainer_config.eval_every_steps", DDP_MEMBER(trainer.eval_every_steps), kStepCount,
       NullMeans::kNotGiven, "", "steps",
       "Steps between evaluations, in addition to one after each epoch."},
      {"trainer_config.eval_iters", DDP_MEMBER(trainer.eval_iters), kUpTo1e9, NullMeans::kNotGiven,
       "all", "batches",
       "Evaluate on this many batches only, spread evenly over the evaluation data."},
      {"trainer_config.early_stopping_patience", DDP_MEMBER(trainer.early_stopping_patience),
       kUpTo1e9, NullMeans::kNotGiven, "", "evaluations",
       "End the run after this many evaluations in a row without progress."},
      {"trainer_config.early_stopping_min_delta", DDP_MEMBER(trainer.early_stopping_min_delta),
       kAtLeast0, NullMeans::kError, "", "",
       "Smallest improvement of metric_for_best_model that counts as progress."},
      {"trainer_config.metric_for_best_model", DDP_MEMBER(trainer.metric_for_best_model), kAnyValue,
       NullMeans::kError, "", "",
       "Evaluation metric that decides which snapshot is best: loss, perplexity, "
       "bits_per_character or accuracy."},
      {"trainer_config.load_best_model_at_end", DDP_MEMBER(trainer.load_best_model_at_end),
       kAnyValue, NullMeans::kError, "", "",
       "Save a snapshot at each new best evaluation, and end the run with the best one instead of "
       "the last."},
      {"trainer_config.sample_every_steps", DDP_MEMBER(trainer.sample_every_steps), kStepCountOr0,
       NullMeans::kOff, "", "steps",
       "Steps between samples of generated text, for the log, TensorBoard and trainer report; 0 or "
       "null: none."},
      {"trainer_config.sample_prompt", DDP_MEMBER(trainer.sample_prompt), kAnyValue,
       NullMeans::kNotGiven, "the first 16 tokens of the evaluation text", "",
       "Text that each sample continues."},
      {"trainer_config.sample_tokens", DDP_MEMBER(trainer.sample_tokens), kUpTo1e6,
       NullMeans::kError, "", "tokens", "Tokens to generate for a sample."},
      {"trainer_config.freeze", DDP_MEMBER(trainer.freeze), kAnyValue, NullMeans::kOff, "", "",
       "Parameters to freeze, as shell patterns of their names: "
       "[\"transformer.wte.*\"]."},
      {"trainer_config.ema_decay", DDP_MEMBER(trainer.ema_decay), kProbability, NullMeans::kError,
       "", "",
       "Decay of an exponential moving average of the weights, used for evaluation; 0: off. 0.999 "
       "is typical."},
      {"trainer_config.seed", DDP_MEMBER(trainer.seed), kAtLeast0, NullMeans::kError, "", "",
       "Random seed for initial weights, data order and dropout."},
      {"trainer_config.use_amp", DDP_MEMBER(trainer.use_amp), kAnyValue, NullMeans::kOff, "", "",
       "Train in mixed precision, in amp_dtype."},
      {"trainer_config.amp_dtype", DDP_MEMBER(trainer.amp_dtype), kAnyValue, NullMeans::kError, "",
       "",
       "Mixed-precision type; float16 (fp16) uses loss scaling, bfloat16 (bf16) does not need it."},
      {"trainer_config.tf32", DDP_MEMBER(trainer.tf32), kAnyValue, NullMeans::kOff, "", "",
       "Let GPUs compute float32 matrix products in TensorFloat-32: several times faster, 10 bits "
       "of mantissa instead of 23. Without effect on CPUs."},
      {"trainer_config.deterministic", DDP_MEMBER(trainer.deterministic), kAnyValue,
       NullMeans::kOff, "", "",
       "Use deterministic algorithms only, so that a repeated run on the same kind of GPU ends in "
       "the same bits; slower. On CPUs runs repeat exactly without it."},
      {"trainer_config.device", DDP_MEMBER(trainer.device), kAnyValue, NullMeans::kError, "", "",
       "auto: a GPU if there is one, else the CPU."},
      {"trainer_config.bad_step_policy", DDP_MEMBER(trainer.bad_step_policy), kAnyValue,
       NullMeans::kError, "", "",
       "What to do about a step with NaN, Inf or a spike in loss or gradients: skip its update; "
       "roll back to the last snapshot and omit the step; or stop."},
      {"trainer_config.spike_factor", DDP_MEMBER(trainer.spike_factor), kAtLeast0, NullMeans::kOff,
       "", "",
       "A loss or gradient norm above this many times the median of the last 64 steps is a spike; "
       "0 or null: off. Costs a host sync per step."},
      {"trainer_config.check_replicas_every_steps", DDP_MEMBER(trainer.check_replicas_every_steps),
       kStepCountOr0, NullMeans::kOff, "", "steps",
       "Steps between comparisons of the training state over all ranks, bit by bit; a difference "
       "ends the run and names the first tensor. 0 or null: none."},
      {"trainer_config.fault_plan", DDP_MEMBER(trainer.fault_plan), kAnyValue, NullMeans::kOff, "",
       "", "Faults to inject, for testing: [\"rank=1 step=12 phase=backward kind=kill\"]."},
  };
}

std::vector<Field> other_fields() {
  return {
      {"optimizer_config.name", DDP_MEMBER(optimizer.name), kAnyValue, NullMeans::kError, "", "",
       "Optimizer; muon updates the hidden layers' matrices and leaves the rest to adamw."},
      {"optimizer_config.learning_rate", DDP_MEMBER(optimizer.learning_rate), kAbove0,
       NullMeans::kError, "", "", "Peak learning rate."},
      {"optimizer_config.lr_schedule", DDP_MEMBER(optimizer.lr_schedule), kAnyValue,
       NullMeans::kError, "", "",
       "Learning rate schedule after the warm-up; wsd (warmup, stable, decay) decays only at the "
       "end, one_cycle has its own warm-up."},
      {"optimizer_config.warmup_steps", DDP_MEMBER(optimizer.warmup_steps), kStepCountOr0,
       NullMeans::kError, "", "steps", "Steps of linear warm-up from 0 to learning_rate."},
      {"optimizer_config.min_lr", DDP_MEMBER(optimizer.min_lr), kAtLeast0, NullMeans::kError, "",
       "", "Learning rate at the end of the decay."},
      {"optimizer_config.decay_steps", DDP_MEMBER(optimizer.decay_steps), kStepCount,
       NullMeans::kNotGiven, "the whole run; wsd: its last tenth", "steps",
       "Step at which min_lr is reached; for wsd the length of the decay at the end of the run."},
      {"optimizer_config.lr_power", DDP_MEMBER(optimizer.lr_power), kAbove0, NullMeans::kError, "",
       "", "Exponent of lr_schedule=polynomial."},
      {"optimizer_config.weight_decay", DDP_MEMBER(optimizer.weight_decay), kAtLeast0,
       NullMeans::kError, "", "", "Weight decay; applied to the weights of linear layers only."},
      {"optimizer_config.betas", DDP_MEMBER(optimizer.betas), kProbability, NullMeans::kError, "",
       "", "beta1 and beta2 of adamw and adam."},
      {"optimizer_config.eps", DDP_MEMBER(optimizer.eps), kAbove0, NullMeans::kError, "", "",
       "Epsilon of adamw and adam."},
      {"optimizer_config.momentum", DDP_MEMBER(optimizer.momentum), kProbability, NullMeans::kError,
       "", "", "Momentum of sgd and muon; auto: 0 for sgd, 0.95 for muon."},
      {"optimizer_config.nesterov", DDP_MEMBER(optimizer.nesterov), kAnyValue, NullMeans::kError,
       "", "", "Nesterov momentum for sgd; muon always has it."},
      {"distributed_config.backend", DDP_MEMBER(distributed.backend), kAnyValue, NullMeans::kError,
       "", "", "auto: nccl on GPUs, gloo on CPUs."},
      {"distributed_config.bucket_cap_mb", DDP_MEMBER(distributed.bucket_cap_mb),
       Range{0, 1e6, true}, NullMeans::kError, "", "MiB",
       "Bucket size: gradients that are all-reduced together."},
      {"distributed_config.gradient_as_bucket_view",
       DDP_MEMBER(distributed.gradient_as_bucket_view), kAnyValue, NullMeans::kError, "", "",
       "Keep gradients in the buckets: no copy, less memory."},
      {"distributed_config.static_graph", DDP_MEMBER(distributed.static_graph), kAnyValue,
       NullMeans::kError, "", "",
       "Promise that the set of used parameters never changes; lets DDP optimize."},
      {"distributed_config.gradient_compression", DDP_MEMBER(distributed.gradient_compression),
       kAnyValue, NullMeans::kError, "", "",
       "Type in which gradients travel between ranks, as torch's bf16_compress_hook and "
       "fp16_compress_hook: half the bytes, 8 or 11 bits of mantissa; none: their own."},
      {"distributed_config.ranks_per_device", DDP_MEMBER(distributed.ranks_per_device), kUpTo1e4,
       NullMeans::kNotGiven, "one on a GPU, any number on CPUs", "ranks",
       "Most ranks that share a GPU, over Gloo, or the CPUs of a machine, each with its share of "
       "the "
       "cores: virtual devices."},
      {"distributed_config.memory_limit_mb", DDP_MEMBER(distributed.memory_limit_mb), kUpTo1e9,
       NullMeans::kNotGiven, "an equal share of a GPU with ranks_per_device, else none", "MiB",
       "Memory that a rank may take, enforced: on a GPU for tensors, on CPUs on top of the "
       "program."},
      {"distributed_config.timeout_s", DDP_MEMBER(distributed.timeout_s), Range{0, 1e9, true},
       NullMeans::kError, "", "seconds",
       "Timeout of collectives and of joining the process group."},
      {"distributed_config.hang_timeout_s", DDP_MEMBER(distributed.hang_timeout_s), kAtLeast0,
       NullMeans::kOff, "", "seconds",
       "Silence after which ddp-run considers a rank hung and restarts the group; auto: the larger "
       "of 3 s and 5 median steps; 0 or null: never."},
  };
}

std::vector<Field> logging_fields() {
  return {
      {"logging_config.jsonl", DDP_MEMBER(logging.jsonl), kAnyValue, NullMeans::kOff, "", "",
       "Writes metrics.jsonl to hydra.run.dir: one JSON object per logged step and evaluation."},
      {"logging_config.tensorboard", DDP_MEMBER(logging.tensorboard), kAnyValue, NullMeans::kOff,
       "", "", "Writes event files for TensorBoard to the folder tensorboard in hydra.run.dir."},
      {"logging_config.progress", DDP_MEMBER(logging.progress), kAnyValue, NullMeans::kError, "",
       "",
       "auto: on a terminal one line that is redrawn; in a pipe or under a launcher a line every "
       "log_every_steps; plain: always such lines; off: nothing but warnings and errors. The log "
       "file has all lines."},
      {"logging_config.histogram_every_steps", DDP_MEMBER(logging.histogram_every_steps),
       kStepCount, NullMeans::kNotGiven, "", "steps",
       "Also writes histograms of parameters and gradients to the event files, every so many "
       "steps."},
      {"logging_config.peak_tflops", DDP_MEMBER(logging.peak_tflops), kAtLeast0, NullMeans::kOff,
       "", "1e12 FLOP/s",
       "What one rank's device can do at most in the precision used: with it the model FLOPs "
       "utilization (mfu) is recorded. 0 or null: it is not."},
  };
}

std::vector<Field> profile_fields() {
  return {
      {"profile.start", DDP_MEMBER(profile.start), kStepCount, NullMeans::kNotGiven, "no profile",
       "steps",
       "First step to profile, from 1: each rank writes a Chrome trace, profile_rank_N.json, to "
       "hydra.run.dir."},
      {"profile.steps", DDP_MEMBER(profile.steps), kUpTo1e4, NullMeans::kError, "", "steps",
       "Number of steps to profile."},
  };
}

std::vector<Field> hydra_fields() {
  return {
      {"hydra.run.dir", DDP_MEMBER(hydra.run_dir), kAnyValue, NullMeans::kError, "", "",
       "Directory of this run, for main.log and .hydra; may contain ${now:%Y-%m-%d}. Relative "
       "paths start at the current directory."},
      {"hydra.output_subdir", DDP_MEMBER(hydra.output_subdir), kAnyValue, NullMeans::kOff, "", "",
       "Subdirectory of it for config.yaml, overrides.yaml and hydra.yaml; null: none."},
      {"hydra.verbose", DDP_MEMBER(hydra.verbose), kAnyValue, NullMeans::kOff, "", "",
       "Log at DEBUG level: true, or a list of logger names, e.g. [trainer]."},
      {"hydra.job.name", DDP_MEMBER(hydra.job_name), kAnyValue, NullMeans::kError, "", "",
       "Job name; unless it is trainer, the log file is named after it."},
      {"hydra.job.chdir", DDP_MEMBER(hydra.job_chdir), kAnyValue, NullMeans::kOff, "", "",
       "Run in hydra.run.dir: a relative snapshot_path starts there (data_config.path never "
       "does)."},
  };
}

/// The section of a model, or a key, and the tasks that know it.
struct ModelSection {
  std::string_view prefix;
  std::vector<TaskKind> tasks;
};

const std::vector<ModelSection>& model_sections() {
  static const std::vector<ModelSection> sections = {
      {"gpt_config.", {TaskKind::kCausalLm}},
      {"bert_config.class_weights", {TaskKind::kTextClassification}},
      {"bert_config.", {TaskKind::kMaskedLm, TaskKind::kTextClassification}},
      {"image_config.", {TaskKind::kImageClassification}},
      {"data_config.on_bad_sample",
       {TaskKind::kImageClassification, TaskKind::kTextClassification}},
      {"data_config.test_path",
       {TaskKind::kCausalLm, TaskKind::kMaskedLm, TaskKind::kTextClassification}},
      {"data_config.text_column", {TaskKind::kTextClassification}},
      {"data_config.label_column", {TaskKind::kTextClassification}},
      {"data_config.bucket_batches", {TaskKind::kTextClassification}},
      {"data_config.min_characters", {TaskKind::kMaskedLm}},
      {"data_config.mask_share", {TaskKind::kMaskedLm}}};
  return sections;
}

}  // namespace

const std::vector<Field>& config_fields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all;
    for (auto part :
         {task_fields(), data_fields(), gpt_fields(), bert_fields(), image_fields(),
          trainer_fields(), other_fields(), logging_fields(), profile_fields(), hydra_fields()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return fields;
}

const Field* find_field(std::string_view path) {
  for (const Field& field : config_fields()) {
    if (field.path == path) return &field;
  }
  return nullptr;
}

bool belongs_to(std::string_view path, TaskKind task) {
  for (const ModelSection& section : model_sections()) {
    if (!path.starts_with(section.prefix)) continue;
    return std::find(section.tasks.begin(), section.tasks.end(), task) != section.tasks.end();
  }
  return true;
}

const std::vector<ModelPreset>& model_presets() {
  static const std::vector<ModelPreset> presets = {
      {"openai-gpt", 12, 12, 768},  {"gpt2", 12, 12, 768},     {"gpt2-medium", 24, 16, 1024},
      {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}, {"gopher-44m", 8, 16, 512},
      {"gpt-mini", 6, 6, 192},      {"gpt-micro", 4, 4, 128},  {"gpt-nano", 3, 3, 48}};
  return presets;
}

}  // namespace ddp::train
