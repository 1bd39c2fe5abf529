// Command lines as ddp-run parses them, and its errors about wrong ones.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/errors.h"
#include "launcher/cli/launch_config.h"
#include "tests/support/catch.h"

namespace ddp::launch {

inline LaunchConfig parse(std::vector<const char*> args, const Environment& environment = {}) {
  args.insert(args.begin(), "ddp-run");
  return parse_launch_args(static_cast<int>(args.size()), args.data(), environment);
}

/// The message of the usage error that `body` throws.
template <typename Body>
std::string problem_of(const Body& body) {
  try {
    body();
  } catch (const LaunchError& error) {
    CHECK(error.exit_code() == 2);
    return error.what();
  }
  return "(accepted)";
}

inline std::string complaint(const std::vector<const char*>& args) {
  return problem_of([&] { parse(args); });
}

}  // namespace ddp::launch
