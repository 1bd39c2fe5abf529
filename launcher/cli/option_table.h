// Every option of ddp-run, listed once: parser, --help, manual page, completion and suggestions all
// read this table.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddp::launch {

enum class OptionGroup {
  kWorkers,
  kRestarts,
  kProgram,
  kRendezvous,
  kStopping,
  kLogs,
  kOther,
  kUnlisted,  // has no row in the help: see a neighbour's, or it has no effect, or is internal
};

struct OptionSpec {
  const char* name;      // with dashes; `_` is accepted everywhere
  char letter;           // 0: no short form
  const char* value;     // placeholder in --help; nullptr: a flag
  const char* fallback;  // value when not given
  OptionGroup group;
  const char* help;
  bool own = false;  // not torchrun's: gives way where a name is abbreviated
};

std::span<const OptionSpec> option_table();
/// Returns all but the unlisted options.
std::span<const OptionSpec> listed_options();

/// Returns nullptr if there is none. `name` may use `_` or `-`.
const OptionSpec* find_option(std::string_view name);
const OptionSpec* find_option(char letter);

}  // namespace ddp::launch
