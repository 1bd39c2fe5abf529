// Every configuration value of trainer: plain structs, filled by load_config() and constant from
// then on. A new key is a member here and a row in keys/key_table.cc, with range, unit and meaning;
// scripts/config_docs.py writes the rest.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::train {

/// What is trained.
enum class TaskKind { kCausalLm, kMaskedLm, kTextClassification, kImageClassification };

constexpr std::string_view task_name(TaskKind task) {
  switch (task) {
    case TaskKind::kCausalLm:
      return "causal_lm";
    case TaskKind::kMaskedLm:
      return "masked_lm";
    case TaskKind::kTextClassification:
      return "text_classification";
    case TaskKind::kImageClassification:
      return "image_classification";
  }
  return "";
}

/// `auto`, or a number of the user's; 0 is off.
struct AutoNumber {
  bool automatic = true;
  double value = 0.0;  ///< Only when not automatic.
};

/// What to do about a sample that cannot be read.
enum class OnBadSample { kSkip, kStop };

enum class DataFormat { kAuto, kText, kTokens };

struct DataConfig {
  std::string path;  ///< A file, glob or folder: UTF-8 text or tokens. Absolute after loading.
  DataFormat format = DataFormat::kAuto;
  std::string tokenizer;  ///< char, byte or a folder, absolute after loading; empty: see its key.
  std::string eval_path;  ///< As path, for evaluation alone; empty: split by train_split.
  std::string test_path;  ///< As eval_path, evaluated once, when training has ended.
  int64_t block_size = 128;  ///< Input sequence length, tokens.
  double train_split =
      0.9;  ///< Share of the text, from its start, used for training; the rest is for evaluation.
  double truncate = 1.0;  ///< Share of the text, from its start, that is used at all.
  /// Distance between the starts of two training windows, tokens.
  AutoNumber stride = {false, 1.0};
  OnBadSample on_bad_sample = OnBadSample::kStop;
  std::string text_column = "text";    ///< Of text_classification: where a table has its texts,
  std::string label_column = "label";  ///< and where their classes.
  int64_t bucket_batches = 0;  ///< Micro-batches made of samples sorted by length; 0: unsorted.
  int64_t min_characters = 0;  ///< Of masked_lm: shorter lines are left out.
  double mask_share = 0.15;    ///< Of masked_lm: share of a line's tokens that are hidden.
};

enum class Activation { kGelu, kGeluTanh };

struct GptConfig {
  std::string model_type;  ///< Preset name, empty when the three sizes are given instead. Kept for
                           ///< messages.
  int64_t n_layer = 0;     ///< Resolved from model_type where that is given.
  int64_t n_head = 0;
  int64_t n_embd = 0;
  double embd_pdrop = 0.1;
  double resid_pdrop = 0.1;
  double attn_pdrop = 0.1;
  Activation activation = Activation::kGelu;
  bool tie_weights = false;  ///< lm_head shares its matrix with the token embedding.
  std::string init_from;     ///< Folder of a GPT-2 to start from. Absolute after loading.
  bool activation_checkpointing = false;
  AutoNumber loss_chunk_size;           ///< Rows of logits at a time in the loss; 0: all.
  AutoNumber pad_vocab_to_multiple_of;  ///< Of the logits of the loss; 0: none.
  bool fused_cpu_kernels = true;        ///< false: torch's operations.
};

/// What the classes count for in a loss.
struct ClassWeights {
  bool balanced = false;       ///< Each class as much as any other, however many samples it has.
  std::vector<double> values;  ///< In the order of the labels; empty: all 1.
};

struct BertConfig {
  std::string model_type;  ///< Preset name, empty when the sizes are given instead.
  int64_t n_layer = 0;     ///< Resolved from model_type or init_from where those are given.
  int64_t n_head = 0;
  int64_t n_embd = 0;
  int64_t intermediate = 0;  ///< Width within the feed-forward layers.
  double hidden_pdrop = 0.1;
  double attn_pdrop = 0.1;
  std::string init_from;  ///< Folder or snapshot of a BERT to start from. Absolute after loading.
  ClassWeights class_weights;  ///< Of text_classification.
};

enum class ImageNetworkKind { kDense, kConv };
enum class BatchNormKind { kOff, kLocal, kSynchronized };

struct ImageConfig {
  ImageNetworkKind network = ImageNetworkKind::kConv;
  int64_t n_layer = 2;         ///< Hidden layers of a dense network, stages of a convolutional one.
  int64_t width = 128;         ///< Units of a hidden layer.
  int64_t conv_channels = 32;  ///< Of the first stage; each further one has twice as many.
  BatchNormKind batch_norm = BatchNormKind::kOff;
  double dropout = 0.0;
  std::optional<int64_t> size;      ///< Pixels of a side that images are brought to.
  std::optional<int64_t> channels;  ///< 1 or 3; none: as the first image.
  double pixel_mean = 0.5;          ///< Of pixels from 0 to 1.
  double pixel_std = 0.5;
  int64_t augment_shift = 0;  ///< Pixels, at most.
  bool augment_flip = false;
};

enum class AmpDtype { kFloat16, kBFloat16 };
enum class DeviceChoice { kAuto, kCpu, kCuda };
enum class IfBusy { kSkip, kWait };
enum class BadStepPolicy { kSkip, kRollback, kStop };

struct TrainerConfig {
  int64_t max_epochs = 10;
  std::optional<int64_t> max_steps;     ///< Stop after this many optimizer steps, even mid-epoch.
  int64_t batch_size = 216;             ///< Sequences per rank and micro-batch.
  int64_t grad_accumulation_steps = 1;  ///< Micro-batches per optimizer step and rank.
  std::optional<int64_t> global_batch_size;  ///< Sequences per optimizer step, all ranks together.
  int64_t data_loader_workers =
      4;                        ///< Data loader threads per rank; 0: load in the training thread.
  double grad_norm_clip = 1.0;  ///< Global L2 norm; 0 switches clipping off.
  std::string snapshot_path = "snapshot.pt";  ///< Absolute after loading.
  int64_t save_every = 3;  ///< Epochs between snapshots; a final one is always written.
  std::optional<int64_t> save_every_steps;
  AutoNumber snapshot_every;                ///< Optimizer steps between two more snapshots.
  double snapshot_overhead = 0.01;          ///< Share of the run's time that `auto` may cost.
  double snapshot_min_interval_s = 60.0;    ///< Least time between two of `auto`, seconds.
  double snapshot_disk_share = 0.1;         ///< Share of the time that `auto` may be writing.
  double snapshot_gb_per_hour = 40.0;       ///< Write limit of `auto`; 0: no limit.
  IfBusy snapshot_if_busy = IfBusy::kSkip;  ///< A snapshot is due while the last is written.
  int64_t save_total_limit = 2;             ///< Files kept: the newest and the ones before it.
  std::string snapshot_cache = "snapshot_cache";  ///< Absolute after loading.
  bool ram_snapshots = false;                     ///< A copy in shared memory after each step.
  int64_t log_every_steps = 10;
  std::optional<int64_t> eval_every_steps;  ///< Besides the evaluation after each epoch.
  std::optional<int64_t> eval_iters;        ///< Batches per evaluation, spread over the whole part.
  std::optional<int64_t> early_stopping_patience;  ///< Evaluations without progress.
  double early_stopping_min_delta = 0.0;
  std::string metric_for_best_model = "loss";
  bool load_best_model_at_end = false;
  int64_t sample_every_steps = 0;  ///< 0: no samples.
  std::string sample_prompt;       ///< Empty: the beginning of the evaluation text.
  int64_t sample_tokens = 100;
  std::vector<std::string> freeze;  ///< Shell patterns of parameter names.
  double ema_decay = 0.0;           ///< Of the averaged weights; 0: none.
  int64_t seed = 1337;
  bool use_amp = false;
  AmpDtype amp_dtype = AmpDtype::kFloat16;
  bool tf32 = false;           ///< In float32 matrix products of a GPU.
  bool deterministic = false;  ///< The same bits from the same run on a GPU, too.
  DeviceChoice device = DeviceChoice::kAuto;
  BadStepPolicy bad_step_policy = BadStepPolicy::kSkip;
  double spike_factor = 0.0;  ///< Times the median that makes a spike of loss or norm; 0: off.
  int64_t check_replicas_every_steps = 0;  ///< 0: never.
  std::vector<std::string> fault_plan;     ///< Faults to inject; see parse_fault().
};

enum class OptimizerName { kAdamW, kAdam, kSgd, kMuon };
enum class LrSchedule { kConstant, kLinear, kPolynomial, kCosine, kWsd, kOneCycle };

struct OptimizerConfig {
  OptimizerName name = OptimizerName::kAdamW;
  double learning_rate = 3e-4;  ///< The largest one of the schedule.
  LrSchedule lr_schedule = LrSchedule::kConstant;
  int64_t warmup_steps = 0;            ///< Optimizer steps from 0 up to learning_rate.
  std::optional<int64_t> decay_steps;  ///< Step at which the decay ends; of wsd: its length.
  double min_lr = 0.0;                 ///< Where the decay ends.
  double lr_power = 1.0;               ///< Of the polynomial schedule.
  double weight_decay = 0.1;           ///< Applied to the weights of linear layers only.
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  AutoNumber momentum;    ///< Of sgd and muon.
  bool nesterov = false;  ///< Of sgd.
};

enum class Backend { kAuto, kGloo, kNccl };
enum class GradientCompression { kNone, kBf16, kFp16 };

struct DistributedConfig {
  Backend backend = Backend::kAuto;  ///< auto: nccl on GPUs, gloo on CPUs.
  double bucket_cap_mb = 25.0;       ///< MiB of gradients that are all-reduced together.
  bool gradient_as_bucket_view = true;
  bool static_graph = false;
  GradientCompression gradient_compression = GradientCompression::kNone;  ///< On their way.
  std::optional<int64_t> ranks_per_device;  ///< Most ranks that share a device, by Gloo.
  std::optional<int64_t> memory_limit_mb;   ///< MiB of its memory for each of them.
  double timeout_s = 1800.0;  ///< Timeout of collectives and of joining the group, seconds.
  AutoNumber hang_timeout_s;  ///< Silence after which ddp-run considers a rank hung, seconds.
};

enum class ProgressStyle { kAuto, kPlain, kOff };

struct LoggingConfig {
  bool jsonl = true;         ///< metrics.jsonl in run_dir.
  bool tensorboard = false;  ///< Event files in run_dir/tensorboard.
  ProgressStyle progress = ProgressStyle::kAuto;
  std::optional<int64_t> histogram_every_steps;  ///< Of parameters and gradients, for TensorBoard.
  double peak_tflops = 0.0;                      ///< Of one rank's device, 1e12 FLOP/s; 0: no MFU.
};

struct ProfileConfig {
  std::optional<int64_t> start;  ///< First step in the trace, from 1; not given: no trace.
  int64_t steps = 3;
};

/// Log level DEBUG for everything, or for the loggers of these names.
struct Verbosity {
  bool all = false;
  std::vector<std::string> loggers;

  bool covers(const std::string& logger) const {
    return all || std::find(loggers.begin(), loggers.end(), logger) != loggers.end();
  }
};

struct HydraConfig {
  std::string run_dir = ".";  ///< The folder of this run. Absolute after loading.
  Verbosity verbose;
  std::string output_subdir = ".hydra";  ///< Below run_dir; empty: nothing is written there.
  std::string job_name = "trainer";
  bool job_chdir = false;  ///< The run works in run_dir.

  /// main.log in run_dir, or what hydra.job.name calls it.
  std::string log_file() const {
    return run_dir + "/" + (job_name == "trainer" ? "main" : job_name) + ".log";
  }
};

/// max_epochs of a run that only max_steps ends.
inline constexpr int64_t kUnlimitedEpochs = 1'000'000'000;

struct Config {
  TaskKind task = TaskKind::kCausalLm;
  DataConfig data;
  GptConfig gpt;
  BertConfig bert;
  ImageConfig image;
  TrainerConfig trainer;
  OptimizerConfig optimizer;
  DistributedConfig distributed;
  LoggingConfig logging;
  ProfileConfig profile;
  HydraConfig hydra;
};

}  // namespace ddp::train
