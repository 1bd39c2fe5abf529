// Resolves PROGRAM to an executable before any rank starts.
#pragma once

#include <string>

#include "launcher/base/command.h"
#include "launcher/cli/launch_config.h"

namespace ddp::launch {

struct ProgramPlaces {
  std::string path;        // PATH
  std::string own_folder;  // the folder of ddp-run itself
  /// PYTHON_EXEC. Empty: python3 next to ddp-run in a virtual or conda environment, else python3 or
  /// python on PATH.
  std::string python;

  static ProgramPlaces of_this_process();
};

/// Treats a program with a `/` as a path; otherwise PATH is searched, then ddp-run's own folder.
/// *.py files, folders with a __main__.py and modules run with Python. Throws LaunchError: 127 not
/// found, 126 not executable.
Command resolve_program(const LaunchConfig& config, const ProgramPlaces& places);

}  // namespace ddp::launch
