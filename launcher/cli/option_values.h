// Typed access to option values; every error contains the option's name.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ddp::launch {

/// Throws LaunchError (2): "--name=value: must be <expected>"; with a hint if empty.
[[noreturn]] void value_error(const char* name, const std::string& value,
                              const std::string& expected);

/// Names are those of option_table; errors are LaunchErrors (2).
class OptionValues {
 public:
  /// `options`: --name=value, flags as --name=true; the last of duplicates wins, missing ones get
  /// option_table's fallback.
  explicit OptionValues(const std::vector<std::string>& options);

  bool flag(const char* name) const { return text(name) == "true"; }
  const std::string& text(const char* name) const { return values_.at(name); }
  bool given(const char* name) const { return given_.count(name) > 0; }

  /// Returns a file name; empty only if it was not given.
  const std::string& file(const char* name) const;
  int integer(const char* name, int low, int high) const;
  double seconds(const char* name) const;
  std::chrono::milliseconds milliseconds(const char* name) const;
  std::string one_of(const char* name, const std::vector<std::string>& choices) const;

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> given_;
};

}  // namespace ddp::launch
