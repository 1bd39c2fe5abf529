// What a process is started with.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ddp::launch {

using Environment = std::map<std::string, std::string>;

/// This process's environment.
Environment inherited_environment();

/// What every worker runs; the same for all but for ${local_rank} in the arguments.
struct Command {
  std::string executable;  // path that is executed
  std::vector<std::string> argv;
};

}  // namespace ddp::launch
