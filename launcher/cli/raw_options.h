// argv and the environment -> what cxxopts parses: names checked against option_table and spelled
// in full, values as they are. Only what argparse, and so torchrun, does and cxxopts cannot.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/base/command.h"

namespace ddp::launch {

struct RawOptions {
  struct Default {
    std::string value;     // of a flag: true
    std::string variable;  // that it comes from
  };
  std::vector<std::string> words;           // options, "--", then the program and its arguments
  bool short_help = false;                  // -h instead of --help
  std::map<std::string, Default> defaults;  // by option: what counts if `words` does not have it
  std::vector<std::string> hints;  // lines for the user: PET_ variables of unknown options, ...
};

/// The command line, and defaults from PET_ variables, then from torchrun's older ones. Throws
/// LaunchError for an unknown option or a missing value.
RawOptions gather_options(int argc, const char* const* argv, const Environment& environment);

}  // namespace ddp::launch
