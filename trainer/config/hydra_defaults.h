// Hydra's own settings as a configuration starts from them: the block `hydra` and its groups.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/tree.h"

namespace ddp::train {

/// The YAML text of "hydra/config", "hydra/job_logging/default" and so on, or nullptr.
const std::string* hydra_config_text(const std::string& path);

/// "hydra", "hydra/job_logging", ...
bool hydra_has_group(const std::string& group);
std::vector<std::string> hydra_options(const std::string& group);

/// Refuses keys that Hydra's configuration does not have, with the nearest one it has. `hydra` is
/// the composed block. Throws UserError.
void check_hydra_keys(const Node& hydra);

}  // namespace ddp::train
