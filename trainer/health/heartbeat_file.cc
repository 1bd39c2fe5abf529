#include "trainer/health/heartbeat_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "launcher/worker_contract.h"

namespace ddp::train {

void beat_at_start(double promise) {
  const char* path = std::getenv(launch::kHeartbeatFile);
  HeartbeatFile(path != nullptr ? path : "")
      .beat(fmt::format("step=0 phase=start collective=none {}{}",
                        promise > 0.0 ? fmt::format("timeout={:.1f} ", promise) : "",
                        launch::kEveryRankWord));
}

HeartbeatFile::HeartbeatFile(const std::string& path) {
  if (path.empty()) return;
  fd_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
}

// Always of one length, so that a reader never sees the end of an older, longer line.
void HeartbeatFile::beat(std::string_view words) {
  if (fd_ < 0) return;
  std::array<char, kLength + 1> line;
  line.fill(' ');
  std::copy_n(words.begin(), std::min(words.size(), kLength), line.begin());
  line.back() = '\n';
  // A beat that is lost is followed by another one.
  [[maybe_unused]] const auto written = ::pwrite(fd_, line.data(), line.size(), 0);
}

}  // namespace ddp::train
