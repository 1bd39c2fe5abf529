// What the ranks of ddp_rank_probe print.
#pragma once

#include <cstdio>
#include <string>

#include "tests/support/catch.h"

namespace ddp::train::test {

/// Standard output of `ranks` real processes of the probe.
inline std::string probe(int ranks, const std::string& what) {
  const std::string command = std::string(DDP_RUN) +
                              " --standalone --nproc_per_node=" + std::to_string(ranks) + " " +
                              DDP_RANK_PROBE + " " + what + " 2>/dev/null";
  // NOLINTNEXTLINE(bugprone-command-processor): the words are the test's own
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  REQUIRE(::pclose(pipe) == 0);
  return text;
}

}  // namespace ddp::train::test
