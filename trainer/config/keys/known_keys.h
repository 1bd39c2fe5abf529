// The structure of a configuration: which keys exist, and errors for unknown ones.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/yaml/tree.h"

namespace ddp::train {

enum class PathKind { kKey, kSection, kUnknown };

/// "trainer_config.seed" is a key, "trainer_config" and "hydra.run" are sections.
PathKind path_kind(const std::string& path);

/// Throws UserError for an unknown key, unless `any_keys`, and for a value in place of a section.
/// `parent` is the map's own path. Leaves out the block `hydra`.
void check_known(const Node& map, const std::string& parent, bool any_keys = false);

/// The same for the block `hydra` alone.
void check_hydra_known(const Node& root, bool any_keys);

[[noreturn]] void fail_unknown(const Place& place, const std::string& parent,
                               const std::string& name);

/// Throws UserError that lists the keys that are ???. Of the block `hydra` those count that trainer
/// uses.
void refuse_missing(const Node& root, const std::string& file);

}  // namespace ddp::train
