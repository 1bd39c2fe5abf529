// Translates options and commands of other launchers into ddp-run's. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

/// `name` as written, without its leading dashes: "num_processes", "np". What follows the name in
/// the error: ", which is accelerate's; write --nproc-per-node=N ..."; empty: not known.
std::string answer_to_option(std::string_view name);

/// A hint if `command` starts another launcher, such as {"mpirun", "-np", "2", "x"}; `module`: its
/// first word is a Python module. Empty: it does not.
std::string hint_for_launcher(const std::vector<std::string>& command, bool module);

}  // namespace ddp::launch
