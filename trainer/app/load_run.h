// The configuration of a run, from its file and the command line, with the sizes of its model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/config/load/read_run.h"

namespace ddp::train {

/// read_run() and complete_model(). `sweep_job` is the number of a job of a sweep. Throws
/// UserError.
RunConfig load_run(const ConfigSource& source, const std::vector<std::string>& overrides,
                   std::optional<int64_t> sweep_job = std::nullopt,
                   DataFiles data = DataFiles::kChecked);

/// The same, returning the configuration only.
Config load_config(const ConfigSource& source, const std::vector<std::string>& overrides);

}  // namespace ddp::train
