#include "trainer/app/standard_output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "trainer/runtime/error.h"

namespace ddp::train {

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw RunError(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
  }
}

}  // namespace ddp::train
