// PROGRAM -> what is executed, found before any rank starts.
#pragma once

#include <string>

#include "launcher/base/command.h"
#include "launcher/cli/launch_config.h"

namespace ddp::launch {

struct ProgramPlaces {
  std::string path;        // PATH
  std::string own_folder;  // where ddp-run itself lies
  std::string python;      // PYTHON_EXEC; empty: python3, else python, on PATH

  static ProgramPlaces of_this_process();
};

/// A program with a `/` is that path; otherwise PATH is searched, then ddp-run's own folder. *.py
/// files, folders with a __main__.py and modules run under Python. Throws LaunchError: 127 not
/// found, 126 not executable.
Command resolve_program(const LaunchConfig& config, const ProgramPlaces& places);

/// Path of ddp-store, which lies beside ddp-run; empty when rank 0 is to serve the workers' store.
/// Throws LaunchError (2) when it is demanded and missing.
std::string find_store_program(StoreChoice choice, const ProgramPlaces& places);

}  // namespace ddp::launch
