// The folder of a run: hydra.run.dir with the subfolder .hydra in it. Only rank 0 writes there.
#pragma once

#include "trainer/config/compose/read_run.h"

namespace ddp::train {

/// Creates the folder and writes config.yaml, hydra.yaml and overrides.yaml below it. Throws
/// UserError when that cannot be.
void write_run_folder(const RunConfig& run);

/// Writes a text to a file of that folder, which is created; `key` is what messages name.
void publish_text(const std::string& folder, const std::string& name, const std::string& text,
                  const std::string& key);

}  // namespace ddp::train
