// trainer export: a snapshot's model as files of other programs.
#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/data/chat/chat_encoding.h"
#include "trainer/data/chat/chat_template_file.h"
#include "trainer/interop/export_model.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/runtime/error.h"
#include "trainer/snapshot/open_model.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/task/adapted_model.h"
#include "trainer/task/causal_data.h"

namespace ddp::train {
namespace {

/// Adapters alone are files of peft's, and whole models of all other formats.
void check_adapters(const ModelBundle& bundle, const ExportArgs& options) {
  const bool to_peft = options.format == ExportFormat::kPeft;
  if (!bundle.config.lora.enabled()) {
    if (!to_peft && !options.merge) return;
    throw UserError(fmt::format("{}: {} is no snapshot of adapters (lora.rank); leave it out",
                                to_peft ? "--format peft" : "--merge", options.snapshot));
  }
  if (to_peft && options.merge)
    throw UserError("--merge: conflicts with --format peft, which is for adapters alone; keep one");
  if (to_peft || options.merge) return;
  throw UserError(fmt::format(
      "export: {} holds adapters (lora.rank) of {}; add --merge for the whole model, or "
      "--format peft for the adapters",
      options.snapshot, causal_architecture(bundle.config).pretrained(bundle.config)));
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

std::vector<std::string> export_bundle(const ModelBundle& bundle, const ExportArgs& options) {
  if (bundle.tokenizer == nullptr) {
    throw UserError(
        fmt::format("snapshot {} was trained with task {}; trainer export is for {}, {} and {}",
                    options.snapshot, task_name(bundle.config.task), task_name(TaskKind::kCausalLm),
                    task_name(TaskKind::kMaskedLm), task_name(TaskKind::kTextClassification)));
  }
  check_adapters(bundle, options);
  const ExportedModel exported{
      bundle.config, bundle.tokenizer->size(),
      options.merge ? merged_weights(bundle.as<CausalModel>()) : bundle.weights, bundle.labels,
      chat_facts(bundle)};
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
  if (options.whole_snapshot) return export_snapshot(options);
  const ModelBundle bundle = open_model(options.snapshot, torch::kCPU);
  for (const auto& name : export_bundle(bundle, options))
    print(fmt::format("{}/{}\n", options.output, name));
  return launch::kExitDone;
}

}  // namespace ddp::train
