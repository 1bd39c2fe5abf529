// argv and PET_ variables -> a list of --name=value, checked against option_table; values are not
// checked.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/base/command.h"

namespace ddp::launch {

struct RawOptions {
  std::vector<std::string>
      options;              // --name=value, flags as --name=true; the last of duplicates wins
  bool short_help = false;  // -h instead of --help
  std::vector<std::string> program;  // the first positional argument and everything after it
  std::map<std::string, std::string> sources;  // --name -> the variable that set it
  std::vector<std::string> hints;  // lines for the user: PET_ variables of unknown options, ...
};

/// In increasing precedence: torchrun's older variables, PET_ variables, the command line. Throws
/// LaunchError for an unknown option or a missing value.
RawOptions gather_options(int argc, const char* const* argv, const Environment& environment);

}  // namespace ddp::launch
