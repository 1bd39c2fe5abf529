// trainer export: a snapshot's model as files of other programs.
#include <fmt/format.h>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/snapshot_model.h"
#include "trainer/app/standard_output.h"
#include "trainer/interop/export_model.h"
#include "trainer/runtime/error.h"
#include "trainer/snapshot/remote_snapshots.h"

namespace ddp::train {
namespace {

std::vector<std::string> export_causal(const OpenedSnapshot& snapshot, const ExportArgs& options) {
  const SnapshotModel loaded = load_snapshot_model(snapshot, "export", torch::kCPU);
  const ExportedModel exported{loaded.config.gpt,
                               loaded.model->block_size(),
                               loaded.model->vocab_size(),
                               loaded.weights(),
                               {}};
  return export_model(exported, *loaded.tokenizer, options.format, options.output);
}

std::vector<std::string> export_masked(const OpenedSnapshot& snapshot, const ExportArgs& options) {
  const MaskedSnapshotModel loaded = load_masked_model(snapshot, torch::kCPU);
  const ExportedModel exported{loaded.config.bert,
                               loaded.model->positions(),
                               loaded.model->vocab_size(),
                               loaded.weights(),
                               {}};
  return export_model(exported, *loaded.tokenizer, options.format, options.output);
}

std::vector<std::string> export_classifier(const OpenedSnapshot& snapshot,
                                           const ExportArgs& options) {
  const ClassifierSnapshotModel loaded = load_classifier_model(snapshot, torch::kCPU);
  const ExportedModel exported{loaded.config.bert, loaded.model->positions(),
                               loaded.model->vocab_size(), loaded.weights(), loaded.labels};
  return export_model(exported, *loaded.tokenizer, options.format, options.output);
}

std::vector<std::string> export_snapshot(const OpenedSnapshot& snapshot,
                                         const ExportArgs& options) {
  const std::string task = snapshot_task(snapshot.meta);
  if (task == task_name(TaskKind::kMaskedLm)) return export_masked(snapshot, options);
  if (task == task_name(TaskKind::kTextClassification)) return export_classifier(snapshot, options);
  if (task == task_name(TaskKind::kImageClassification)) {
    throw UserError(
        fmt::format("snapshot {} was trained with task {}; trainer export is for {}, {} and {}",
                    snapshot.path, task, task_name(TaskKind::kCausalLm),
                    task_name(TaskKind::kMaskedLm), task_name(TaskKind::kTextClassification)));
  }
  return export_causal(snapshot, options);
}

}  // namespace

int run_export(const TrainerArgs& args) {
  const ExportArgs& options = args.exporting;
  const FetchedSnapshot fetched(options.snapshot);
  const OpenedSnapshot snapshot = open_snapshot(fetched.file());
  for (const auto& name : export_snapshot(snapshot, options))
    print(fmt::format("{}/{}\n", options.output, name));
  return launch::kExitDone;
}

}  // namespace ddp::train
