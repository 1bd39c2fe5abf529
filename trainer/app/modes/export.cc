// trainer export: a snapshot's model as files of other programs.
#include <fmt/format.h>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/snapshot_model.h"
#include "trainer/app/standard_output.h"
#include "trainer/interop/export_model.h"

namespace ddp::train {
int run_export(const TrainerArgs& args) {
  const ExportArgs& options = args.exporting;
  const SnapshotModel loaded = load_snapshot_model(options.snapshot, "export", torch::kCPU);
  const ExportedModel exported{loaded.config.gpt, loaded.model->block_size(),
                               loaded.model->vocab_size(), loaded.weights()};
  for (const auto& name : export_model(exported, *loaded.tokenizer, options.format, options.output))
    print(fmt::format("{}/{}\n", options.output, name));
  return launch::kExitDone;
}

}  // namespace ddp::train
