#include "trainer/config/keys/key_rows.h"

namespace ddp::train {

std::vector<Field> distributed_fields() {
  return {
      {DDP_KEY(distributed, strategy),
       .meaning =
           "Who holds what. ddp: every rank all of the training state; zero1: each rank its "
           "share of the optimizer's state; zero2: and of the gradients, which are reduced "
           "in every micro-batch; zero3: and of the weights, which are collected block by block; "
           "auto: what trainer plan would choose for this machine, kept "
           "by the run as long as its number of ranks stays. The numbers are those of ddp."},
      {DDP_KEY(distributed, offload),
       .meaning =
           "optimizer: the optimizer's state and the averaged weights are kept in host memory "
           "and updated by the CPU; gradients are copied there and weights back in every "
           "step. For GPUs, with any strategy; 8 bytes a parameter less on the GPU with "
           "AdamW."},
      {DDP_KEY(distributed, tensor), .range = Range{1, 1024}, .unit = "ranks",
       .meaning =
           "Tensor parallelism: ranks that share each layer of a language model, by heads, inner "
           "features and vocabulary; neighbours, best on one machine. The number of ranks "
           "is a multiple of it. 1: each rank computes whole layers."},
      {DDP_KEY(distributed, sequence_parallel), .null_means = NullMeans::kOff,
       .meaning = "With tensor above 1: norms, dropout and residuals work on each rank's share of "
                  "a sequence's rows: less memory for activations, the same bytes sent."},
      {DDP_KEY(distributed, expert), .range = Range{1, 1024}, .unit = "ranks",
       .tasks = {TaskKind::kCausalLm},
       .meaning =
           "Expert parallelism of a mixture of experts: neighbouring ranks, each with its own "
           "micro-batches, that share the experts of each layer and send tokens to their owners; "
           "everything else is trained as by strategy: ddp. The numbers of ranks and of experts "
           "are multiples of it. 1: each rank has all experts."},
      {DDP_KEY(distributed, pipeline), .range = Range{1, 1e4}, .unit = "stages",
       .tasks = {TaskKind::kCausalLm},
       .meaning = "Cut each copy of the model into this many stages of consecutive layers, one for "
                  "each rank, through which the grad_accumulation_steps micro-batches of a step "
                  "pass one after the other."},
      {DDP_KEY(distributed, pipeline_schedule), .tasks = {TaskKind::kCausalLm},
       .meaning = "Order of the stages' work. 1f1b: a stage alternates between forward and "
                  "backward passes and keeps the activations of at most `pipeline` micro-batches; "
                  "gpipe: all forward passes first; interleaved: several stages on each rank; "
                  "the same numbers."},
      {DDP_KEY(distributed, pipeline_chunks), .range = Range{1, 1e4}, .unit = "stages",
       .tasks = {TaskKind::kCausalLm},
       .meaning = "Stages of each rank with pipeline_schedule: interleaved; more of them wait less "
                  "and send more."},
      {DDP_KEY(distributed, backend),
       .meaning = "auto: nccl on GPUs, gloo on CPUs, where the ranks of one machine reduce through "
                  "memory that they share; gloo: through sockets there, too."},
      {DDP_KEY(distributed, bucket_cap_mb), .range = Range{0, 1e6, true}, .unit = "MiB",
       .meaning = "Bucket size: gradients that are all-reduced together."},
      {DDP_KEY(distributed, gradient_as_bucket_view),
       .meaning = "Keep gradients in the buckets: no copy, less memory."},
      {DDP_KEY(distributed, static_graph),
       .meaning = "Promise that the set of used parameters never changes; lets DDP optimize."},
      {DDP_KEY(distributed, gradient_compression),
       .meaning =
           "Type in which gradients travel between ranks, as with torch's bf16_compress_hook and "
           "fp16_compress_hook: half the bytes, 8 or 11 bits of mantissa; none: their own."},
      {DDP_KEY(distributed, ranks_per_device), .range = kUpTo1e4, .unit = "ranks",
       .default_text = "one on a GPU, any number on CPUs",
       .meaning = "Maximum number of ranks that share a GPU (over Gloo), or a machine's CPUs (each "
                  "with its share of the cores): virtual devices."},
      {DDP_KEY(distributed, memory_limit_mb), .range = kUpTo1e9, .unit = "MiB",
       .default_text = "an equal share of a GPU with ranks_per_device, else none",
       .meaning = "Memory limit per rank, enforced: on GPUs for tensors, on CPUs for what comes on "
                  "top of the program itself."},
      {DDP_KEY(distributed, timeout_s), .range = Range{0, 1e9, true}, .unit = "seconds",
       .meaning = "Timeout of collectives and of joining the process group."},
      {DDP_KEY(distributed, hang_timeout_s), .range = kAtLeast0, .unit = "seconds",
       .null_means = NullMeans::kOff,
       .meaning = "Time without a heartbeat after which ddp-run considers a rank hung and restarts "
                  "the group; auto: the larger of 3 s and 5 median steps; 0 or null: never."},
  };
}

std::vector<Field> logging_fields() {
  return {
      {DDP_KEY(logging, jsonl), .null_means = NullMeans::kOff,
       .meaning =
           "Write metrics.jsonl to hydra.run.dir: one JSON object per logged step and evaluation."},
      {DDP_KEY(logging, tensorboard), .null_means = NullMeans::kOff,
       .meaning = "Write TensorBoard event files to the folder tensorboard in hydra.run.dir."},
      {DDP_KEY(logging, progress),
       .meaning = "auto: on a terminal, one line that is redrawn; elsewhere a line every "
                  "log_every_steps; plain: always such lines; off: warnings and errors "
                  "only. The log file always has all lines."},
      {DDP_KEY(logging, histogram_every_steps), .range = kStepCount, .unit = "steps",
       .meaning = "Steps between histograms of parameters and gradients in the event files."},
      {DDP_KEY(logging, peak_tflops), .range = kAtLeast0, .unit = "1e12 FLOP/s",
       .null_means = NullMeans::kOff,
       .meaning = "Peak throughput of one rank's device in the precision used, to record model "
                  "FLOPs utilization (mfu). 0 or null: not recorded."},
  };
}

std::vector<Field> metrics_fields() {
  return {
      {DDP_KEY(metrics, wandb), .null_means = NullMeans::kOff,
       .meaning =
           "Send metrics.jsonl to Weights & Biases from a Python process of its own, which needs "
           "the package wandb. offline: files for wandb sync in the folder wandb of hydra.run.dir; "
           "online: to the server. WANDB_PROJECT and its other variables apply."},
      {DDP_KEY(metrics, mlflow), .null_means = NullMeans::kOff,
       .meaning = "Likewise to MLflow, with the package mlflow-skinny, as MLFLOW_TRACKING_URI and "
                  "MLFLOW_EXPERIMENT_NAME say."},
  };
}

std::vector<Field> profile_fields() {
  return {
      {DDP_KEY_AT("profile.start", profile.start), .range = kStepCount, .unit = "steps",
       .default_text = "no profile",
       .meaning = "First step to profile, from 1: each rank writes a Chrome trace, "
                  "profile_rank_N.json, to hydra.run.dir."},
      {DDP_KEY_AT("profile.steps", profile.steps), .range = kUpTo1e4, .unit = "steps",
       .meaning = "Number of steps to profile."},
  };
}

std::vector<Field> hydra_fields() {
  return {
      {DDP_KEY_AT("hydra.run.dir", hydra.run_dir),
       .meaning = "Directory of this run, for main.log and .hydra; may contain ${now:%Y-%m-%d}. "
                  "Relative paths start at the current directory."},
      {DDP_KEY_AT("hydra.output_subdir", hydra.output_subdir), .null_means = NullMeans::kOff,
       .meaning = "Subdirectory of hydra.run.dir for config.yaml, overrides.yaml and hydra.yaml; "
                  "null: none."},
      {DDP_KEY_AT("hydra.verbose", hydra.verbose), .null_means = NullMeans::kOff,
       .meaning = "Log at DEBUG level: true, or a list of logger names, e.g. [trainer]."},
      {DDP_KEY_AT("hydra.job.name", hydra.job_name),
       .meaning = "Job name; unless it is trainer, the log file is named after it."},
      {DDP_KEY_AT("hydra.job.chdir", hydra.job_chdir), .null_means = NullMeans::kOff,
       .meaning = "Run in hydra.run.dir: a relative snapshot_path starts there (data_config.path "
                  "never does)."},
  };
}

}  // namespace ddp::train
