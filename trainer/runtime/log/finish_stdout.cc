#include "trainer/runtime/log/finish_stdout.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "trainer/runtime/error.h"

namespace ddp::train {

void finish_stdout() {
  errno = 0;
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!lost) return;
  throw RunError(std::string("cannot write to standard output: ") +
                 std::strerror(errno != 0 ? errno : EIO));
}

}  // namespace ddp::train
