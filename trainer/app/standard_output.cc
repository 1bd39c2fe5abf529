#include "trainer/app/standard_output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

void flush_stdout() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw RunError(
      fmt::format("cannot write to standard output: {}", std::strerror(errno != 0 ? errno : EIO)));
}

}  // namespace

void print(const std::string& text) {
  errno = 0;
  std::fwrite(text.data(), 1, text.size(), stdout);
  flush_stdout();
}

void finish_stdout() {
  errno = 0;
  flush_stdout();
}

}  // namespace ddp::train
