// Checks that concern more than one key, and the values that follow from others.
#pragma once

#include <functional>
#include <string>

#include "trainer/config/config.h"

namespace ddp::train {

/// What the checks need to know about where values came from.
struct Given {
  std::function<bool(const std::string& key)> has;  ///< Given in the file or on the command line.
  std::function<std::string(const std::string& key)>
      where;  ///< "file:line:col: key", or the file's name and the key.

  /// Throws UserError.
  [[noreturn]] void refuse(const std::string& key, const std::string& what) const;
};

/// Resolves model_type, unlimited epochs and the like, then checks what spans several keys. Throws
/// UserError.
void complete_config(Config& config, const Given& given);

/// Relative paths become absolute against the current directory, snapshot_path against the run's
/// folder where that is the run's own (a job of a sweep, or hydra.job.chdir); the data file must be
/// readable.
void resolve_paths(Config& config, const Given& given, bool own_folder);

/// "~/x" -> home, then against the current directory.
std::string absolute_path(const std::string& path);

}  // namespace ddp::train
