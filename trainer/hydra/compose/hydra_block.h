// The `hydra` block of a configuration: a table of its keys, defaults and whether they have an
// effect, and Hydra's own config groups. Those with an effect are typed where they are used.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

/// "hydra.mode", "hydra.run.dir", ...
std::vector<std::string> hydra_paths();

/// The YAML text of "hydra/config", "hydra/job_logging/none" and so on, or nullptr.
const std::string* hydra_config_text(const std::string& path);

/// "hydra", "hydra/job_logging", ...
bool hydra_has_group(const std::string& group);
std::vector<std::string> hydra_options(const std::string& group);

/// Returns given settings without effect here: "hydra.job.env_set", "hydra/launcher".
std::vector<std::string> hydra_without_effect(
    const Node& root, const std::vector<std::pair<std::string, std::string>>& choices);

}  // namespace ddp::train
