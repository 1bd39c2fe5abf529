// Hydra's defaults list: the configurations that make up a run, and the package of each.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/hydra/compose/config_repository.h"
#include "trainer/hydra/override/overrides.h"

namespace ddp::train {

/// One configuration of the run.
struct ResultDefault {
  std::string config_path;   ///< "db/mysql"
  std::string package;       ///< "db", "" for the top
  std::string override_key;  ///< For a group, e.g. "db"; else empty.
  bool primary = false;
};

struct DefaultsList {
  std::vector<ResultDefault> configs;                        ///< In the order of merging.
  std::vector<Override> value_overrides;                     ///< Overrides other than groups'.
  std::vector<std::pair<std::string, std::string>> choices;  ///< group, option ("null" for none)
};

/// Builds the list for the primary configuration and the overrides that choose groups
/// (`db=mysql`, `+db=mysql`, `~db`, `db@package=mysql`). A choice of ??? is an error
/// unless `skip_missing`. Throws UserError.
DefaultsList make_defaults_list(ConfigRepository& repository,
                                const std::vector<Override>& overrides, bool skip_missing);

}  // namespace ddp::train
