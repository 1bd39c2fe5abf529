// Composes a configuration file, the entries of its defaults list, and the overrides into one
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

/// A merged file, and the package of its content ("" for the top).
struct MergedConfig {
  std::string file;
  std::string package;
};

/// kMultirun: the common part of a sweep's jobs; a group may still be ???.
enum class RunMode { kRun, kMultirun };

struct Composed {
  Node root;                                                 ///< With the block `hydra`.
  std::vector<std::pair<std::string, std::string>> choices;  ///< config group, option
  std::vector<MergedConfig> configs;  ///< In the order of merging, without Hydra's own.
  std::vector<std::string> ignored;   ///< Given settings in `hydra` without effect here.
};

/// Reads the files and applies the overrides: keys other than `keys` are rejected with a
/// suggestion; known ones need no +. Throws UserError.
Composed compose_config(const ConfigSource& source, const std::vector<std::string>& overrides,
                        const KnownKeys& keys, RunMode mode = RunMode::kRun);

/// `hydra.run.dir=x` or `hydra/job_logging=disabled`
bool is_hydra_override(const Override& change);

}  // namespace ddp::train
