// The command line of trainer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/distributed_config.h"
#include "trainer/config/show/config_show.h"
#include "trainer/config/trainer_config.h"
#include "trainer/interop/export_format.h"
#include "trainer/model/sampling_options.h"

namespace ddp::train {

enum class Mode {
  kTrain,
  kGenerate,
  kEval,
  kPredict,
  kExport,
  kEstimate,
  kPlan,
  kInspect,
  kDoctor,
  kTokenize,
  kDataShow,
  kReport,
  kShow,
  kHelp,
  kVersion
};

/// Options of `trainer generate`.
struct GenerateArgs {
  std::string snapshot;
  std::string base;  ///< Place of the model below the snapshot's adapters; empty: init_from.
  std::string prompt;
  std::optional<std::string> prompt_file;  ///< Instead of prompt; "-" is standard input.
  bool prompt_per_line = false;            ///< Each line of prompt_file is one.
  bool chat = false;   ///< A conversation; prompt: its only message, else standard input has them.
  std::string system;  ///< A conversation's system message; empty: none.
  SamplingOptions sampling{.seed = 1337, .cuda_graphs = true};
  std::vector<std::string> stops;
  int64_t num_samples = 1;  ///< Per prompt.
  int64_t batch_size = 8;   ///< Continuations at a time.
  bool json = false;
  DeviceChoice device = DeviceChoice::kAuto;
};

/// Options of `trainer eval`.
struct EvalArgs {
  std::string snapshot;
  std::string base;  ///< As GenerateArgs::base.
  std::string
      data;  ///< Evaluate on all of it; empty: on the evaluation part of the snapshot's run.
  std::string suite;       ///< Instead: multiple-choice questions to score.
  int64_t batch_size = 0;  ///< 0: that of the run.
  DeviceChoice device = DeviceChoice::kAuto;
  bool json = false;
};

/// Options of `trainer predict`; without text and input, texts come from standard input.
struct PredictArgs {
  std::string snapshot;
  std::string text;
  std::string text_pair;  ///< With text, of a model of pairs.
  std::string input;      ///< Instead of text: a file or a folder.
  std::string output;     ///< A .csv file for the answers; empty: standard output.
  int64_t top = 5;        ///< Answers shown of an input.
  DeviceChoice device = DeviceChoice::kAuto;
  bool json = false;
};

/// Options of `trainer export`.
struct ExportArgs {
  std::string snapshot;
  std::string base;  ///< Place of the model that the run started from; empty: init_from.
  std::optional<ExportDtype> dtype;  ///< nullopt: as in the model that the run started from.
  ExportFormat format = ExportFormat::kHuggingFace;
  bool to_nf4 = false;          ///< Quantize the weights of linear layers.
  bool merge = false;           ///< Add adapters to the model's weights.
  bool whole_snapshot = false;  ///< Instead: the snapshot itself, in one file.
  std::string output;
};

/// Options of `trainer estimate` besides the configuration.
struct EstimateArgs {
  int64_t world_size = 1;
  bool json = false;
};

/// Options of `trainer plan` besides the configuration. Missing ones have defaults that depend on
/// the device.
struct PlanArgs {
  int64_t gpus = 1;  ///< On all nodes; CPU ranks if the configuration trains on CPUs.
  int64_t nodes = 1;
  double memory_gb = 0.0;            ///< Per GPU, 1e9 bytes.
  std::optional<double> link_gb_s;   ///< Between nodes; within the node if there is only one.
  std::optional<double> tflops;      ///< Peak of a GPU, 1e12 FLOP/s.
  std::optional<double> efficiency;  ///< Share of the peak that computation attains.
  bool json = false;
};

/// Options of `trainer tokenize`.
struct TokenizeArgs {
  std::string tokenizer;  ///< char, byte, bpe, wordpiece, or a folder.
  std::vector<std::string> inputs;
  std::string output;
  bool train = false;
  int64_t vocab_size = 0;                  ///< 0: not given
  bool append_end_of_text = false;         ///< After each file.
  std::optional<std::string> text_column;  ///< For files of rows.
  bool skip_bad_rows = false;
  bool overwrite = false;
  int64_t shard_tokens = 100'000'000;
  int64_t threads = 0;  ///< 0: one for each core
};

struct TrainerArgs {
  Mode mode = Mode::kTrain;
  ConfigSource config;                 ///< `--config FILE`, or -cp, -cn and -cd.
  std::vector<std::string> overrides;  ///< `key=value` arguments, in order.
  GenerateArgs generate;
  EvalArgs eval;
  PredictArgs predict;
  ExportArgs exporting;
  EstimateArgs estimate;
  PlanArgs plan;
  std::optional<int64_t> vocab_size;  ///< estimate and plan: instead of reading the data.
  TokenizeArgs tokenize;
  int64_t data_rows = 3;                    ///< `trainer data show --rows N`
  std::string inspect_snapshot;             ///< `trainer inspect SNAPSHOT`
  bool inspect_json = false;                ///< `--json`
  bool doctor_json = false;                 ///< `--json`
  bool doctor_quick = false;                ///< `--quick`
  DistributedConfig doctor_group;           ///< `--ranks_per_device`, `--memory_limit_mb`
  std::vector<std::string> report_folders;  ///< `trainer report RUN_DIR ...`
  std::string report_output = "report.html";
  std::string help_text;      ///< Filled for kHelp: what to print on stdout.
  bool multirun = false;      ///< `--multirun`: a job for each combination of values.
  bool show_origins = false;  ///< kShow: `--info defaults`, else `--cfg`
  ShowOptions show;           ///< kShow: what `--cfg` prints.
};

/// Parses argv (without argv[0] it would be empty: prints help). Throws UserError with a suggestion
/// for a mistyped option, mode or a missing value. Reads no file.
TrainerArgs parse_trainer_args(int argc, const char* const* argv);

/// Returns the text that kShow prints. Throws UserError.
std::string show_text(const TrainerArgs& args);

}  // namespace ddp::train
