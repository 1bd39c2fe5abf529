// A configuration file, what its defaults list brings, and the overrides, put together into one
// tree.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/hydra/compose/config_repository.h"
#include "trainer/hydra/compose/known_keys.h"
#include "trainer/hydra/override/overrides.h"
#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

/// A file that was merged, and where its content went ("" for the top).
struct MergedConfig {
  std::string file;
  std::string package;
};

/// kMultirun: what the jobs of a sweep share; a group may still be ???.
enum class RunMode { kRun, kMultirun };

struct Composed {
  Node root;                                                 ///< With the block `hydra`.
  std::vector<std::pair<std::string, std::string>> choices;  ///< config group, option
  std::vector<MergedConfig> configs;  ///< In the order of merging, without Hydra's own.
  std::vector<std::string> ignored;   ///< What was given in `hydra` and has no effect here.
};

/// Reads the files and applies the overrides: keys that are not among `keys` are refused with a
/// suggestion, the others need no +. Throws UserError.
Composed compose_config(const ConfigSource& source, const std::vector<std::string>& overrides,
                        const KnownKeys& keys, RunMode mode = RunMode::kRun);

/// `hydra.run.dir=x` or `hydra/job_logging=disabled`
bool is_hydra_override(const Override& change);

}  // namespace ddp::train
