// The options of one mode on the command line. Only this file and parsed_options.cc include cxxopts
// in trainer.
#pragma once

#include <cstdint>
#include <cxxopts.hpp>
#include <map>
#include <string>
#include <vector>

namespace ddp::train {

using Words = std::vector<std::string>;

/// The options of one mode, parsed, and the remaining words. Throws UserError.
class Parsed {
 public:
  /// `page`: the mode's help, each line of which that begins with an option declares it, as in
  /// "  -c, --config FILE  ..."; one without a value is a flag. Either of _ and - is accepted.
  /// `command`: prints it.
  Parsed(const Words& words, const std::string& page, std::string command);

  bool has(const std::string& name) const { return result_.count(name) > 0; }
  std::size_t times(const std::string& name) const { return result_.count(name); }
  std::string text(const std::string& name) const { return result_[name].as<std::string>(); }
  /// Every value of an option that may be given several times.
  Words texts(const std::string& name) const;
  const Words& rest() const { return rest_; }

  int64_t whole_number(const std::string& name, int64_t low) const;
  double positive_number(const std::string& name) const;
  double number_from_0(const std::string& name) const;
  /// Up to 1; `zero`: 0 is allowed as well.
  double share(const std::string& name, bool zero) const;
  /// One of the words, by its position.
  std::size_t choice(const std::string& name, const Words& words) const;

  void require(const Words& names) const;
  /// Throws UserError for positional words after the first `allowed` ones.
  void refuse_rest(std::size_t allowed = 0) const;

 private:
  void declare(const std::string& line);
  void declare(const std::string& name, const std::string& value, const std::string& letter);
  Words in_one_spelling(Words words) const;
  void check_values(const Words& words) const;
  [[noreturn]] void fail_unknown(const std::string& word, bool after_dashes) const;

  std::string help_;
  cxxopts::Options declared_;
  cxxopts::ParseResult result_;
  Words names_;
  std::map<std::string, std::string> values_;  ///< "-c", "--config" -> "FILE"; "" for a flag
  Words rest_;
};

}  // namespace ddp::train
