// trainer export: a snapshot's model as files of other programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/data/chat/chat_encoding.h"
#include "trainer/data/chat/chat_template_file.h"
#include "trainer/interop/base_settings.h"
#include "trainer/interop/export_model.h"
#include "trainer/model/lora.h"
#include "trainer/runtime/error.h"
#include "trainer/snapshot/open_model.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/task/adapted_model.h"
#include "trainer/task/causal_data.h"

namespace ddp::train {
namespace {

void check_whole_snapshot(const ExportArgs& options) {
  if (!options.dtype && options.base.empty() && !options.to_nf4) return;
  throw UserError(fmt::format("{}: a --format snapshot is a copy of the snapshot; leave it out",
                              options.dtype    ? "--dtype"
                              : options.to_nf4 ? "--quantize"
                                               : "--base"));
}

/// Adapters alone are files of peft's, and whole models of all other formats.
void check_adapters(const ModelBundle& bundle, const ExportArgs& options) {
  const bool to_peft = options.format == ExportFormat::kPeft;
  if (!bundle.config.adapted()) {
    if (!to_peft && !options.merge) return;
    throw UserError(
        fmt::format("{}: {} is no snapshot of adapters (lora.rank, prompt_tuning); leave it out",
                    to_peft ? "--format peft" : "--merge", options.snapshot));
  }
  if (bundle.config.prompt_tuning.enabled() && (options.merge || !to_peft)) {
    throw UserError(fmt::format(
        "{}: {} holds virtual tokens (prompt_tuning), which are no weights of the "
        "model; use --format peft{}",
        options.merge ? "--merge" : "export", options.snapshot, options.merge ? " instead" : ""));
  }
  const bool has_tied_table =
      bundle.config.task == TaskKind::kMaskedLm &&
      std::any_of(bundle.weights.begin(), bundle.weights.end(), [](const NamedTensor& weight) {
        return weight.name.find(".lora_embedding_") != std::string::npos;
      });
  if (options.merge && has_tied_table)
    throw UserError(
        "--merge: the output layer of a masked language model is its word embedding, and the "
        "adapter of word_embeddings would change both; use --format peft instead");
  if (to_peft && options.merge)
    throw UserError("--merge: conflicts with --format peft, which is for adapters alone; keep one");
  if (to_peft || options.merge) return;
  throw UserError(fmt::format(
      "export: {} holds adapters (lora.rank) of {}; add --merge for the whole model, or "
      "--format peft for the adapters",
      options.snapshot, model_below(bundle.config).path));
}

void check_types(const ModelBundle& bundle, const ExportArgs& options) {
  const bool is_causal = bundle.config.task == TaskKind::kCausalLm;
  const bool to_gguf = options.format == ExportFormat::kGguf;
  if (options.to_nf4 && options.format != ExportFormat::kHuggingFace)
    throw UserError(
        "--quantize: is for folders of transformers (--format huggingface); leave it out");
  if (options.dtype == ExportDtype::kQ8_0 && !to_gguf)
    throw UserError("--dtype q8_0: is for --format gguf; use fp32, bf16 or fp16");
  if (to_gguf && !is_causal)
    throw UserError(
        fmt::format("--format gguf: is for language models, and {} is of task {}; use "
                    "--format huggingface",
                    options.snapshot, task_name(bundle.config.task)));
}

/// The token is not found where this trainer does not support the template; it is exported all the
/// same.
std::optional<int32_t> end_of_turn(const ChatTemplateText& text, const Tokenizer& tokenizer) {
  try {
    const ChatTemplate chat = parse_chat_template(text);
    return ChatEncoder(chat, tokenizer).end_of_turn();
  } catch (const UserError&) {
    return std::nullopt;
  }
}

std::optional<ChatFacts> chat_facts(const ModelBundle& bundle) {
  const auto state = bundle.metadata.find(kChatTemplate);
  if (state == bundle.metadata.end()) return std::nullopt;
  const ChatTemplateText text = chat_template_from_state(state->second);
  return ChatFacts{text.source, text.special, end_of_turn(text, *bundle.tokenizer)};
}

/// The settings of --base, else those in the snapshot.
std::optional<BaseSettings> settings_of(const ModelBundle& bundle, const ExportArgs& options) {
  if (options.base.empty()) return base_settings_of(bundle.metadata);
  return base_settings_of(
      {{kBaseSettings, base_settings_state(options.base, bundle.tokenizer.get())}});
}

/// What has moved away is named in one line.
std::optional<BaseSettings> carried_settings(const ModelBundle& bundle, const ExportArgs& options) {
  std::error_code ignored;
  if (!options.base.empty() && !std::filesystem::exists(options.base, ignored))
    throw UserError(fmt::format("--base: {}: no such folder or snapshot", options.base));
  auto settings = settings_of(bundle, options);
  if (!settings) return settings;
  const bool is_folder = std::filesystem::is_directory(options.base, ignored);
  const std::string folder = is_folder ? options.base : settings->folder;
  std::vector<std::string> missing = take_large_files(*settings, folder, *bundle.tokenizer);
  std::erase(missing, "tokenizer.json");  // it is written from the snapshot instead
  if (missing.empty()) return settings;
  fmt::print(stderr,
             "warning: export: {} {}, so that these are not carried along: {}; name the folder of "
             "that model with --base\n",
             folder,
             std::filesystem::exists(folder, ignored) ? "has another tokenizer than the snapshot"
                                                      : "is no longer there",
             fmt::join(missing, ", "));
  return settings;
}

bool has_quantized_base(const ModelBundle& bundle) {
  return bundle.config.lora.enabled() && bundle.config.quantize.enabled();
}

/// In the order of ExportDtype; q8_0 is made of float32.
torch::ScalarType dtype_of_export(const std::optional<BaseSettings>& base,
                                  const ModelBundle& bundle, const ExportArgs& options) {
  constexpr torch::ScalarType kTypes[] = {torch::kFloat32, torch::kBFloat16, torch::kFloat16,
                                          torch::kFloat32};
  if (options.dtype) return kTypes[static_cast<std::size_t>(*options.dtype)];
  if (options.format == ExportFormat::kPeft) return torch::kFloat32;
  const std::string name = base ? base_dtype(*base) : "";
  if (has_quantized_base(bundle) && name != "float16") return torch::kBFloat16;
  return name == "bfloat16"  ? torch::kBFloat16
         : name == "float16" ? torch::kFloat16
                             : torch::kFloat32;
}

std::vector<std::string> export_bundle(const ModelBundle& bundle, const ExportArgs& options) {
  if (bundle.tokenizer == nullptr) {
    throw UserError(
        fmt::format("snapshot {} was trained with task {}; trainer export is for {}, {} and {}",
                    options.snapshot, task_name(bundle.config.task), task_name(TaskKind::kCausalLm),
                    task_name(TaskKind::kMaskedLm), task_name(TaskKind::kTextClassification)));
  }
  check_adapters(bundle, options);
  check_types(bundle, options);
  const auto base = carried_settings(bundle, options);
  ExportedModel exported{bundle.config,
                         bundle.tokenizer->size(),
                         options.merge ? merged_weights(*bundle.model) : bundle.weights,
                         bundle.labels,
                         chat_facts(bundle),
                         base,
                         dtype_of_export(base, bundle, options),
                         options.to_nf4,
                         options.dtype == ExportDtype::kQ8_0};
  const auto has_head = [](const NamedTensor& weight) { return weight.name == "lm_head.weight"; };
  if (options.merge && trains_causal_lm(bundle.config.task) &&
      std::any_of(exported.weights.begin(), exported.weights.end(), has_head))
    causal_architecture(bundle.config).untie(exported.config);
  if (options.merge && options.to_nf4) {
    fmt::print(stderr,
               "note: export: rounding merged weights to 4 bits loses part of what the adapters "
               "learned; --format peft keeps it\n");
  } else if (options.merge && has_quantized_base(bundle)) {
    fmt::print(stderr,
               "note: export: the adapters are added to the dequantized weights of "
               "quantize.base={}; merging into 4 or 8 bits would lose part of what they learned\n",
               name_of(bundle.config.quantize.base));
  }
  return export_model(exported, *bundle.tokenizer, options.format, options.output);
}

/// The state of training, not only the model.
int export_snapshot(const ExportArgs& options) {
  const FetchedSnapshot fetched(options.snapshot);
  const OpenedSnapshot snapshot = open_snapshot(fetched.file());
  std::error_code error;
  std::filesystem::create_directories(options.output, error);
  const std::string file =
      options.output + "/" + std::filesystem::path(fetched.file()).filename().string();
  if (std::filesystem::exists(file, error))
    throw UserError(fmt::format("{}: is there already; give another --output", file));
  write_as_one_file(snapshot, file);
  print(file + "\n");
  return launch::kExitDone;
}

}  // namespace

int run_export(const TrainerArgs& args) {
  const ExportArgs& options = args.exporting;
  if (options.whole_snapshot) {
    check_whole_snapshot(options);
    return export_snapshot(options);
  }
  const ModelBundle bundle = open_model(options.snapshot, torch::kCPU, options.base);
  for (const auto& name : export_bundle(bundle, options))
    print(fmt::format("{}/{}\n", options.output, name));
  return launch::kExitDone;
}

}  // namespace ddp::train
