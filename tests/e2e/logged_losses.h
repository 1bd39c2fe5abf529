// Losses of runs that differ by rounding.
#pragma once

#include <cmath>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace ddp::test {

/// Losses of the training steps and the evaluations, in the order of the log.
inline std::vector<double> logged_losses(const std::string& output) {
  static const std::regex loss(R"(\| (?:Train|Eval) Loss (\S+))");
  std::vector<double> losses;
  for (std::sregex_iterator it(output.begin(), output.end(), loss), end; it != end; ++it)
    losses.push_back(std::stod((*it)[1]));
  return losses;
}

inline void check_near(const std::vector<double>& some, const std::vector<double>& others,
                       double margin) {
  REQUIRE(!some.empty());
  REQUIRE(some.size() == others.size());
  for (std::size_t i = 0; i < some.size(); ++i) CHECK(std::abs(some[i] - others[i]) <= margin);
}

}  // namespace ddp::test
