// The command line, parsed by cxxopts, with typed access; every error contains the option's name.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/cli/raw_options.h"

namespace ddp::launch {

/// Throws LaunchError (2): "--name=value: must be <expected>"; with a hint if empty.
[[noreturn]] void value_error(const char* name, const std::string& value,
                              const std::string& expected);

/// Names are those of option_table; errors are LaunchErrors (2).
class OptionValues {
 public:
  /// The last of duplicates wins; missing ones get `raw`'s default, else option_table's fallback.
  explicit OptionValues(const RawOptions& raw);

  bool flag(const char* name) const { return text(name) == "true"; }
  const std::string& text(const char* name) const { return values_.at(name); }
  /// On the command line or by a default of `raw`.
  bool given(const std::string& name) const { return given_.count(name) > 0; }
  bool on_command_line(const std::string& name) const { return on_command_line_.count(name) > 0; }
  /// The first word that belongs to no option, and everything after it.
  const std::vector<std::string>& program() const { return program_; }

  /// Returns a file name; empty only if it was not given.
  const std::string& file(const char* name) const;
  int integer(const char* name, int low, int high) const;
  double seconds(const char* name) const;
  std::chrono::milliseconds milliseconds(const char* name) const;
  std::string one_of(const char* name, const std::vector<std::string>& choices) const;

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> given_;
  std::set<std::string> on_command_line_;
  std::vector<std::string> program_;
};

}  // namespace ddp::launch
