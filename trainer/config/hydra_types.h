// The types of Hydra's own block, as its structured configuration has them.
#pragma once

#include <string>

#include "trainer/config/tree.h"

namespace ddp::train {

/// Converts each value of the block `hydra` to its type: 5 is a text for hydra.job.name. Throws
/// UserError for what OmegaConf refuses, such as null for a text or a list for a number.
void convert_hydra(Node& hydra);

/// Whether the path ("hydra.job.name") is a field, which cannot be deleted.
bool is_hydra_field(const std::string& path);

}  // namespace ddp::train
