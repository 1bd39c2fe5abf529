// Keys that another key leaves without effect.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/config/keys/config_checks.h"

namespace ddp::train {

/// One line for each key of `given` that changes nothing in this run. Keys of a file that have
/// their default do not count, as in the configuration that a run writes. `config`: completed.
std::vector<std::string> idle_keys(const Config& config, const Given& given);

}  // namespace ddp::train
