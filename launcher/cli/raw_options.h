// argv and PET_ variables -> a list of --name=value, checked against option_table; says nothing
// about the values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/base/command.h"

namespace ddp::launch {

struct RawOptions {
  std::vector<std::string>
      options;  // --name=value, flags as --name=true; the last of equal names counts
  std::vector<std::string> program;  // the first positional argument and all that follows it
  std::map<std::string, std::string> sources;  // --name -> the variable that has set it
  std::vector<std::string> hints;              // PET_ variables that are no option: one line each
};

/// What counts most comes last: torchrun's older variables, PET_ variables, the command line.
/// Throws LaunchError for an option that does not exist or has no value.
RawOptions gather_options(int argc, const char* const* argv, const Environment& environment);

}  // namespace ddp::launch
