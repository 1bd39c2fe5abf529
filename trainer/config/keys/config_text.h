// Config <-> text, as printed at the start and stored in snapshots.
#pragma once

#include <string>

namespace ddp::train {

struct Config;

/// The resolved configuration as one JSON object with the sections and keys of the YAML file,
/// without the models of other tasks.
/// Equal configurations give equal text: keys in a fixed order, numbers in shortest round-trip
/// form.
std::string config_to_json(const Config& config);

/// Reads back what config_to_json wrote (a snapshot's `config`); throws RunError on anything else.
Config config_from_json(const std::string& json);

/// The resolved configuration as YAML, for the log.
std::string config_to_yaml(const Config& config);

}  // namespace ddp::train
