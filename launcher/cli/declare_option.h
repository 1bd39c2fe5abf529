// ddp-run's options as cxxopts knows them, for the parser and the help.
#pragma once

#include <cxxopts.hpp>
#include <string>

#include "launcher/cli/option_table.h"

namespace ddp::launch {

/// Adds `option` to `options`, below the title `group` in the help. `fallback`: its value when it
/// is not given; empty: none.
inline void declare_option(cxxopts::Options& options, const OptionSpec& option,
                           const std::string& fallback, const std::string& group = "") {
  const auto value = option.value ? cxxopts::value<std::string>() : cxxopts::value<bool>();
  if (!fallback.empty()) value->default_value(fallback);
  const std::string letter = option.letter ? std::string{option.letter, ','} : "";
  options.add_options(group)(letter + option.name, option.help, value,
                             option.value ? option.value : "");
}

}  // namespace ddp::launch
