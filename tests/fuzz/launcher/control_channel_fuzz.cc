// Whatever bytes come to the port of a rendezvous, before or after the handshake, the channel gives
// messages or closes. Input: a byte that says which, then the bytes.
#include "launcher/rendezvous/control_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/check.h"

using namespace ddp::launch;

namespace {

void send_all(int fd, std::string_view bytes, ControlChannel& to) {
  while (!bytes.empty() && to.state() != ControlChannel::State::Closed) {
    const ssize_t sent = ::send(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 4096),
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
    to.handle();
    while (to.take()) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  int ends[2];
  FUZZ_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  using Side = ControlChannel::Side;
  if (data[0] % 3 < 2) {  // a stranger at either side
    ControlChannel channel(ends[1], data[0] % 3 == 0 ? Side::Host : Side::Agent, "token");
    channel.handle();
    send_all(ends[0], bytes, channel);
    FUZZ_CHECK(channel.state() != ControlChannel::State::Open);
    ::close(ends[0]);
    return 0;
  }
  ControlChannel agent(ends[0], Side::Agent, "token");
  ControlChannel host(ends[1], Side::Host, "token");
  for (int i = 0; i < 4; ++i) {
    agent.handle();
    host.handle();
  }
  FUZZ_CHECK(host.state() == ControlChannel::State::Open);
  send_all(ends[0], bytes, host);
  host.send(Alive{});
  return 0;
}
