// Whatever comes through the pipe of timers, those that expire have a signal that exists and a name
// that a terminal may show.
#include "launcher/hang/file_timers.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <string>

#include "tests/fuzz/check.h"

using namespace ddp::launch;

namespace {

void check(const ExpiredTimer& timer) {
  FUZZ_CHECK(timer.signal > 0 && timer.signal < NSIG);
  FUZZ_CHECK(std::none_of(timer.scope.begin(), timer.scope.end(),
                          [](unsigned char c) { return c < 0x20 || c == 0x7f; }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kPipe = 60'000;  // more would wait for a reader
  const std::string path = "/tmp/ddp_timers_fuzz_" + std::to_string(::getpid());
  FileTimers timers(path, check);
  std::ofstream(path).write(reinterpret_cast<const char*>(data),
                            static_cast<std::streamsize>(std::min(size, kPipe)));
  std::vector<pollfd> fds;
  timers.add_poll_fds(fds);
  FUZZ_CHECK(::poll(fds.data(), fds.size(), 0) >= 0);
  timers.handle(fds);
  return 0;
}
