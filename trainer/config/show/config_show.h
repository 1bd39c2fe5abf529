// `trainer --cfg job` and `--info defaults`: the composed configuration as text, without starting
// anything.
#pragma once

#include <string>
#include <vector>

#include "trainer/hydra/compose/config_repository.h"

namespace ddp::train {

enum class ShowWhat { kJob, kHydra, kAll };
enum class ShowFormat { kYaml, kJson };

struct ShowOptions {
  ShowWhat what = ShowWhat::kJob;  ///< kJob leaves the hydra block out.
  ShowFormat format = ShowFormat::kYaml;
  bool resolve = false;           ///< Replace interpolations.
  bool throw_on_missing = false;  ///< Fail if a value is still ???.
  std::string package;            ///< Only this part, "a.b".
};

/// Throws UserError as load_config does; the data file need not exist.
std::string show_config(const ConfigSource& source, const std::vector<std::string>& overrides,
                        const ShowOptions& options);

/// The same for each job of a sweep: JSON with one job per line, YAML separated by `---`.
std::string show_sweep(const ConfigSource& source, const std::vector<std::string>& overrides,
                       const ShowOptions& options);

/// The files in the order of merging, then each value with the place it comes from:
/// file:line:column, the override, or the default.
std::string show_origins(const ConfigSource& source, const std::vector<std::string>& overrides);

}  // namespace ddp::train
