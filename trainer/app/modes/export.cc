// trainer export: a snapshot's model as files of other programs.
#include <fmt/format.h>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/interop/export_model.h"
#include "trainer/runtime/error.h"
#include "trainer/snapshot/open_model.h"

namespace ddp::train {
namespace {

std::vector<std::string> export_bundle(const ModelBundle& bundle, const ExportArgs& options) {
  if (bundle.tokenizer == nullptr) {
    throw UserError(
        fmt::format("snapshot {} was trained with task {}; trainer export is for {}, {} and {}",
                    options.snapshot, task_name(bundle.config.task), task_name(TaskKind::kCausalLm),
                    task_name(TaskKind::kMaskedLm), task_name(TaskKind::kTextClassification)));
  }
  const ExportedModel exported{bundle.config, bundle.tokenizer->size(), bundle.weights,
                               bundle.labels};
  return export_model(exported, *bundle.tokenizer, options.format, options.output);
}

}  // namespace

int run_export(const TrainerArgs& args) {
  const ExportArgs& options = args.exporting;
  const ModelBundle bundle = open_model(options.snapshot, torch::kCPU);
  for (const auto& name : export_bundle(bundle, options))
    print(fmt::format("{}/{}\n", options.output, name));
  return launch::kExitDone;
}

}  // namespace ddp::train
