// A test that proves nothing on this machine prints that; ctest counts it as skipped where its
// target has SKIP_REGULAR_EXPRESSION "\[skipped\]".
#pragma once

#include <iostream>
#include <string>
#include "tests/support/catch.h"

namespace ddp::test {

/// The test returns after it. `why` names what is missing.
inline void say_skipped(const std::string& why) {
  std::cout << "[skipped] " << why << std::endl;
  SUCCEED("skipped: " << why);
}

}  // namespace ddp::test
