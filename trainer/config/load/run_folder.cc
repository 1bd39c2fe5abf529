#include "trainer/config/load/run_folder.h"

#include "trainer/hydra/compose/folders.h"

namespace ddp::train {

void write_run_folder(const RunConfig& run) {
  const HydraConfig& hydra = run.config.hydra;
  if (hydra.output_subdir.empty()) return;
  const std::string folder = hydra.run_dir + "/" + hydra.output_subdir;
  publish_text(folder, "config.yaml", run.files.config, "hydra.run.dir");
  publish_text(folder, "hydra.yaml", run.files.hydra, "hydra.run.dir");
  publish_text(folder, "overrides.yaml", run.files.overrides, "hydra.run.dir");
}

}  // namespace ddp::train
