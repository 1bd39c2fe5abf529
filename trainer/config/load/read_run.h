// YAML file + command-line overrides -> Config, all but the sizes of its model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/config/keys/config_checks.h"
#include "trainer/hydra/compose/config_repository.h"

namespace ddp::train {

/// The contents of `.hydra`: the composed configuration, Hydra's own, the overrides, as YAML.
struct RunFiles {
  std::string config;
  std::string hydra;
  std::string overrides;
};

struct RunConfig {
  Config config;
  RunFiles files;
  Given given;          ///< For checks beyond the configuration, such as of a model's folder.
  std::string warning;  ///< Settings of Hydra without effect here, or "".
};

/// Whether data must exist: not if only the configuration is used.
enum class DataFiles { kChecked, kUnchecked };

/// Sets values that follow from others; before the checks across keys.
using DeriveValues = void (*)(Config& config, const Given& given);

/// Composes the configuration of `source` with `overrides` ("a.b=value", in order), types and
/// checks every key. `sweep_job` is the number of a job of a sweep.
///
/// Throws UserError, one line: file:line:column (or "command line: <override>"), the key, the
/// offending value, the fix; unknown keys come with the nearest known one. Relative paths inside
/// are resolved against the current directory, snapshot_path of a job of a sweep (or with
/// hydra.job.chdir) against the folder of that run.
RunConfig read_run(const ConfigSource& source, const std::vector<std::string>& overrides,
                   std::optional<int64_t> sweep_job, DataFiles data, DeriveValues derive);

/// Creates hydra.run.dir and writes config.yaml, hydra.yaml and overrides.yaml below it. For rank 0
/// alone. Throws UserError if that fails.
void write_run_folder(const RunConfig& run);

}  // namespace ddp::train
