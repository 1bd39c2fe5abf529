// YAML file + command-line overrides -> Config. The only file of trainer that sees yaml-cpp is
// yaml_config.cc.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/config/config_repository.h"

namespace ddp::train {

/// Composes the configuration of `source`, applies `overrides` ("a.b=value", in order), types and
/// checks every key.
///
/// Throws UserError, one line: file:line:column (or "command line: <override>"), the key, the
/// offending value, the fix; unknown keys come with the nearest known one. Relative paths inside
/// are resolved against the current directory.
Config load_config(const ConfigSource& source, const std::vector<std::string>& overrides);

}  // namespace ddp::train
