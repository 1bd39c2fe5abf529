// The folder of a run: hydra.run.dir with the subfolder .hydra in it. Only rank 0 writes there.
#pragma once

#include "trainer/config/load/read_run.h"

namespace ddp::train {

/// Creates the folder and writes config.yaml, hydra.yaml and overrides.yaml below it. Throws
/// UserError if that fails.
void write_run_folder(const RunConfig& run);

}  // namespace ddp::train
