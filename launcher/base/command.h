// The parameters of a new process: program, arguments, environment.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ddp::launch {

using Environment = std::map<std::string, std::string>;

/// Returns a variable's value; "" if it is not set.
std::string value_of(const Environment& environment, const std::string& name);

/// Returns the current process's environment.
Environment inherited_environment();

/// The workers' command; only ${local_rank} in the arguments differs between them.
struct Command {
  std::string executable;  // path passed to exec
  std::vector<std::string> argv;
};

}  // namespace ddp::launch
