// Keys that another key leaves without effect.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/config/keys/config_checks.h"

namespace ddp::train {

/// Whether the key is given with a value other than its default. `config` holds the given values.
bool is_chosen(const std::string& key, const Config& config, const Given& given);

/// One line for each key of `given` that changes nothing in this run. Keys that have their
/// default do not count: a configuration that a run writes has all keys. `config`: completed.
std::vector<std::string> idle_keys(const Config& config, const Given& given);

}  // namespace ddp::train
