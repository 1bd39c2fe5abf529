// Shell completion generated from option_table: options, values with choices, then files.
#pragma once

#include <string>
#include <string_view>

namespace ddp::launch {

/// A script for "bash", "zsh" or "fish"; empty for any other shell.
std::string completion_script(std::string_view shell);

}  // namespace ddp::launch
