// What the ranks of ddp_rank_probe print.
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include "tests/support/catch.h"

namespace ddp::train::test {

/// Standard output of `ranks` real processes of `program`, and how ddp-run ended.
inline std::pair<std::string, int> ranks_output(int ranks, const std::string& program) {
  const std::string command = std::string(DDP_RUN) +
                              " --standalone --nproc_per_node=" + std::to_string(ranks) + " " +
                              program + " 2>/dev/null";
  // NOLINTNEXTLINE(bugprone-command-processor): the words are the test's own
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  const int status = ::pclose(pipe);
  return {std::move(text), status};
}

/// Output and exit status of the probe.
inline std::pair<std::string, int> probe_and_status(int ranks, const std::string& what) {
  return ranks_output(ranks, std::string(DDP_RANK_PROBE) + " " + what);
}

/// The output of ranks that succeed.
inline std::string probe(int ranks, const std::string& what) {
  auto [text, status] = probe_and_status(ranks, what);
  REQUIRE(status == 0);
  return std::move(text);
}

}  // namespace ddp::train::test
