#include "trainer/config/keys/key_rows.h"

namespace ddp::train {

std::vector<Field> trainer_fields() {
  return {
      {DDP_KEY(trainer, max_epochs), .range = kUpTo1e9, .unit = "epochs",
       .default_text = "10; unlimited when max_steps is given alone",
       .meaning = "Passes over the training data."},
      {DDP_KEY(trainer, max_steps), .range = kStepCount, .unit = "steps",
       .meaning = "Stop after this many optimizer steps, even mid-epoch."},
      {DDP_KEY(trainer, batch_size), .range = kUpTo1e6, .unit = "sequences",
       .meaning = "Sequences per rank and micro-batch."},
      {DDP_KEY(trainer, grad_accumulation_steps), .range = kUpTo1e6,
       .meaning = "Micro-batches per optimizer step and rank."},
      {DDP_KEY(trainer, global_batch_size), .range = kUpTo1e9, .unit = "sequences",
       .meaning =
           "Sequences per optimizer step over all ranks; replaces grad_accumulation_steps and must "
           "be a multiple of batch_size. If unset, a resumed run keeps its snapshot's."},
      {DDP_KEY(trainer, data_loader_workers), .range = Range{0, 256}, .unit = "threads",
       .meaning = "Data loader threads per rank; 0: load in the training thread."},
      {DDP_KEY(trainer, grad_norm_clip), .range = kAtLeast0, .null_means = NullMeans::kOff,
       .meaning = "Clip gradients to this global L2 norm; 0 or null: no clipping."},
      {DDP_KEY(trainer, snapshot_path), .default_text = "snapshot.pt in hydra.run.dir",
       .meaning = "File to save training state to and resume from. Relative paths start at the "
                  "current directory."},
      {DDP_KEY(trainer, save_every), .range = kUpTo1e9, .unit = "epochs",
       .meaning = "Epochs between snapshots; one is always written at the end."},
      {DDP_KEY(trainer, save_every_steps), .range = kStepCount, .unit = "steps",
       .meaning = "Optimizer steps between additional snapshots."},
      {DDP_KEY(trainer, snapshot_every), .range = kStepCountOr0, .whole = true, .unit = "steps",
       .null_means = NullMeans::kOff,
       .meaning = "Steps between crash-recovery snapshots; auto: as often as the four keys below "
                  "allow; 0 or null: none."},
      {DDP_KEY(trainer, snapshot_overhead), .range = kShare, .unit = "share",
       .meaning = "Share of training time that snapshot_every: auto may cost."},
      {DDP_KEY(trainer, snapshot_min_interval_s), .range = kAtLeast0, .unit = "seconds",
       .null_means = NullMeans::kOff,
       .meaning = "Minimum time between snapshots of snapshot_every: auto; a crash loses half of "
                  "it on average. 0 or null: no minimum."},
      {DDP_KEY(trainer, snapshot_disk_share), .range = kShare, .unit = "share",
       .meaning = "Share of the time that snapshot_every: auto may keep the disk busy."},
      {DDP_KEY(trainer, snapshot_gb_per_hour), .range = kAtLeast0, .unit = "GB/h",
       .null_means = NullMeans::kOff,
       .meaning =
           "Write limit for snapshot_every: auto; 40 is about 1 TB a day. 0 or null: no limit."},
      {DDP_KEY(trainer, snapshot_if_busy),
       .meaning =
           "What to do when a snapshot is due while the previous one is still being written."},
      {DDP_KEY(trainer, snapshot_shards),
       .meaning = "Whether each rank writes its part of a snapshot to a file of its own, which all "
                  "ranks need a shared folder for. auto: where ranks hold parts of the state "
                  "(strategy=zero1 to zero3, tensor, pipeline) and share the folder."},
      {DDP_KEY(trainer, save_total_limit), .range = kUpTo1e4, .unit = "files",
       .meaning = "Snapshots to keep, including the newest; older ones are deleted. The best by "
                  "metric_for_best_model is kept in addition."},
      {DDP_KEY(trainer, snapshot_cache), .default_text = "snapshot_cache in the current directory",
       .meaning = "Local directory for snapshots when snapshot_path is remote (s3://bucket/key, "
                  "gs://bucket/key)."},
      {DDP_KEY(trainer, ram_snapshots), .null_means = NullMeans::kOff,
       .meaning = "Copy the state to shared memory after each step, so that a restart by ddp-run "
                  "loses at most one. Needs twice the snapshot's size in /dev/shm."},
      {DDP_KEY(trainer, log_every_steps), .range = kStepCount, .unit = "steps",
       .meaning = "Steps between log lines (loss, learning rate, gradient norm, tokens/s)."},
      {DDP_KEY(trainer, eval_every_steps), .range = kStepCount, .unit = "steps",
       .meaning = "Steps between evaluations, in addition to one after each epoch."},
      {DDP_KEY(trainer, eval_iters), .range = kUpTo1e9, .unit = "batches", .default_text = "all",
       .meaning = "Evaluate on this many batches only, spread evenly over the evaluation data."},
      {DDP_KEY(trainer, early_stopping_patience), .range = kUpTo1e9, .unit = "evaluations",
       .meaning = "End the run after this many evaluations in a row without progress."},
      {DDP_KEY(trainer, early_stopping_min_delta), .range = kAtLeast0,
       .meaning = "Smallest improvement of metric_for_best_model that counts as progress."},
      {DDP_KEY(trainer, metric_for_best_model),
       .meaning = "Evaluation metric that decides which snapshot is best: loss or another one of "
                  "the task, such as perplexity, accuracy, f1 or masked_accuracy."},
      {DDP_KEY(trainer, load_best_model_at_end),
       .meaning = "Save a snapshot at each new best evaluation, and end the run with the best one "
                  "instead of the last."},
      {DDP_KEY(trainer, sample_every_steps), .range = kStepCountOr0, .unit = "steps",
       .null_means = NullMeans::kOff, .tasks = kCausalTasks,
       .meaning = "Steps between samples of generated text, for the log, TensorBoard and trainer "
                  "report; 0 or null: none."},
      {DDP_KEY(trainer, sample_prompt), .null_means = NullMeans::kNotGiven,
       .default_text = "the first 16 tokens of the evaluation text", .tasks = kCausalTasks,
       .meaning = "Text that each sample continues."},
      {DDP_KEY(trainer, sample_tokens), .range = kUpTo1e6, .unit = "tokens", .tasks = kCausalTasks,
       .meaning = "Tokens to generate for a sample."},
      {DDP_KEY(trainer, freeze), .null_means = NullMeans::kOff,
       .meaning =
           "Parameters to freeze, as shell patterns of their names: [\"transformer.wte.*\"]."},
      {DDP_KEY(trainer, label_smoothing), .range = kProbability,
       .tasks = {TaskKind::kCausalLm, TaskKind::kMaskedLm, TaskKind::kTextClassification,
                 TaskKind::kImageClassification},
       .meaning = "Share of each target's probability that the training loss spreads evenly over "
                  "all classes, as in torch's CrossEntropyLoss; evaluations do without."},
      {DDP_KEY(trainer, ema_decay), .range = kProbability,
       .meaning = "Decay of an exponential moving average of the weights, used for evaluation; 0: "
                  "off. 0.999 is typical."},
      {DDP_KEY(trainer, seed), .range = kAtLeast0,
       .meaning = "Random seed for initial weights, data order, dropout and, when a run begins, "
                  "the rows that text_classification evaluates on."},
      {DDP_KEY(trainer, use_amp), .null_means = NullMeans::kOff,
       .meaning = "Train in mixed precision, in amp_dtype."},
      {DDP_KEY(trainer, amp_dtype), .meaning = "Mixed-precision type; float16 (fp16) uses loss "
                                               "scaling, bfloat16 (bf16) does not need it."},
      {DDP_KEY(trainer, amp_on_cpu),
       .meaning = "Whether use_amp holds on CPUs. auto: where the CPUs of all ranks compute in "
                  "amp_dtype (avx512_bf16 or amx_bf16, avx512_fp16 or amx_fp16), else they train "
                  "in float32, which is faster there."},
      {DDP_KEY(trainer, fused_gpu_kernels),
       .meaning =
           "On GPUs in bfloat16, and for a quantized base, use trainer's own kernels, compiled "
           "when the run starts and kept in ~/.cache/ddp_run; false: torch's, which read and write "
           "memory more often."},
      {DDP_KEY(trainer, cuda_graphs),
       .meaning =
           "On one GPU, launch forward and backward pass of a micro-batch as one CUDA graph. "
           "auto: where tensors take at most a quarter of the GPU's memory, as only small "
           "models wait for launches; true: always."},
      {DDP_KEY(trainer, tf32), .null_means = NullMeans::kOff,
       .meaning = "Let GPUs compute float32 matrix products in TensorFloat-32: several times "
                  "faster, 10 bits of mantissa instead of 23. No effect on CPUs."},
      {DDP_KEY(trainer, deterministic), .null_means = NullMeans::kOff,
       .meaning = "Use deterministic algorithms only: runs repeat bit for bit on the same kind of "
                  "GPU, but are slower. On CPUs they always do."},
      {DDP_KEY(trainer, device), .meaning = "auto: a GPU if there is one, else the CPU."},
      {DDP_KEY(trainer, bad_step_policy),
       .meaning = "What to do about a step with NaN, Inf or a spike in loss or gradients: skip its "
                  "update; roll back to the last snapshot and omit the step; or stop."},
      {DDP_KEY(trainer, spike_factor), .range = kAtLeast0, .null_means = NullMeans::kOff,
       .meaning = "A loss or gradient norm above this many times the median of the last 64 steps "
                  "is a spike; 0 or null: off. Costs a host sync per step."},
      {DDP_KEY(trainer, check_replicas_every_steps), .range = kStepCountOr0, .unit = "steps",
       .null_means = NullMeans::kOff,
       .meaning = "Steps between bitwise comparisons of the training state across ranks; a "
                  "difference ends the run and reports the first tensor. 0 or null: never."},
      {DDP_KEY(trainer, fault_plan), .null_means = NullMeans::kOff,
       .meaning = "Faults to inject, for testing: [\"rank=1 step=12 phase=backward kind=kill\"]."},
  };
}

std::vector<Field> optimizer_fields() {
  return {
      {DDP_KEY(optimizer, name),
       .meaning =
           "Optimizer; muon updates the hidden layers' matrices and leaves the rest to adamw."},
      {DDP_KEY(optimizer, learning_rate), .range = kAtLeast0, .meaning = "Peak learning rate."},
      {DDP_KEY(optimizer, lr_schedule),
       .meaning = "Learning rate schedule after warmup; wsd (warmup, stable, decay) decays "
                  "only at the end, one_cycle has its own warmup."},
      {DDP_KEY(optimizer, warmup_steps), .range = kStepCountOr0, .unit = "steps",
       .meaning = "Steps of linear warmup from 0 to learning_rate."},
      {DDP_KEY(optimizer, warmup_ratio), .range = kProbability,
       .meaning = "Linear warmup as a share of the run's steps, rounded up; instead of "
                  "warmup_steps."},
      {DDP_KEY(optimizer, min_lr), .range = kAtLeast0,
       .meaning = "Learning rate at the end of the decay."},
      {DDP_KEY(optimizer, decay_steps), .range = kStepCount, .unit = "steps",
       .default_text = "the whole run; wsd: its last tenth",
       .meaning = "Step at which min_lr is reached; for wsd the length of the decay at the end of "
                  "the run."},
      {DDP_KEY(optimizer, lr_power), .range = kAbove0,
       .meaning = "Exponent of lr_schedule=polynomial."},
      {DDP_KEY(optimizer, weight_decay), .range = kAtLeast0,
       .meaning = "Weight decay; by default applied to the weights of linear layers and "
                  "convolutions only."},
      {DDP_KEY(optimizer, decay_embeddings),
       .meaning =
           "Apply weight_decay to embeddings as well, as nanoGPT and transformers do; minGPT "
           "does not."},
      {DDP_KEY(optimizer, betas), .range = kProbability,
       .meaning = "beta1 and beta2 of adamw and adam."},
      {DDP_KEY(optimizer, eps), .range = kAbove0, .meaning = "Epsilon of adamw and adam."},
      {DDP_KEY(optimizer, state_bits),
       .meaning = "Bits of the averages of adamw and adam. 8: those of parameters of 4096 and more "
                  "elements are quantized in blocks of 256; 2 bytes a parameter instead of 8."},
      {DDP_KEY(optimizer, momentum), .range = kProbability,
       .meaning = "Momentum of sgd and muon; auto: 0 for sgd, 0.95 for muon."},
      {DDP_KEY(optimizer, nesterov), .meaning = "Nesterov momentum for sgd; muon always has it."},
      {DDP_KEY(optimizer, param_groups), .null_means = NullMeans::kOff,
       .meaning = "Parameters to train in another way, by shell patterns of their names; the first "
                  "match counts. Keys of an entry: pattern (one or a list), lr_mult, weight_decay, "
                  "optimizer (muon or adamw, with name: muon), frozen."},
  };
}

}  // namespace ddp::train
