// Whatever bytes come to the port of a rendezvous, before or after the handshake, with a valid MAC
// or without, the channel gives messages or closes. Input: a byte that selects the case, then the
// bytes; each sealed frame begins with its length in units of 16 bytes, 255 for all of the rest.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/rendezvous/wire/control_channel.h"
#include "tests/fuzz/check.h"

using namespace ddp::launch;

namespace {

using From = ConnectionKeys::From;

const std::string kHello = "DDP-RUN/" + std::string("\0\3", 2) + std::string(16, 'n');

void send_all(int fd, std::string_view bytes, ControlChannel& to) {
  while (!bytes.empty() && to.state() != ControlChannel::State::kClosed) {
    const ssize_t sent = ::send(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 4096),
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
    to.handle();
    while (to.take()) {
    }
  }
}

// Goes through the handshake as an agent; returns what seals its frames.
FrameSeal open_as_agent(int fd, ControlChannel& host) {
  send_all(fd, kHello, host);
  std::array<char, 26 + 32> answer{};
  FUZZ_CHECK(::recv(fd, answer.data(), answer.size(), 0) == static_cast<ssize_t>(answer.size()));
  const ConnectionKeys keys("token", kHello, {answer.data(), 26});
  FUZZ_CHECK(keys.accepts_proof(From::kHost, {answer.data() + 26, 32}));
  send_all(fd, keys.proof(From::kAgent), host);
  FUZZ_CHECK(host.state() == ControlChannel::State::kOpen);
  return keys.seal(From::kAgent);
}

void send_sealed(int fd, std::string_view bytes, ControlChannel& host, FrameSeal seal) {
  while (!bytes.empty()) {
    const auto units = static_cast<unsigned char>(bytes[0]);
    bytes.remove_prefix(1);
    const std::string_view body = bytes.substr(0, units == 255 ? bytes.size() : 16U * units);
    bytes.remove_prefix(body.size());
    std::string frame;
    for (const unsigned shift : {24U, 16U, 8U, 0U})
      frame += static_cast<char>((body.size() >> shift) & 0xffU);
    send_all(fd, frame.append(body) + seal.next_tag(body), host);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  int ends[2];
  FUZZ_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  using Side = ControlChannel::Side;
  const int kind = data[0] % 4;
  ControlChannel channel(ends[1], kind == 1 ? Side::kAgent : Side::kHost, "token");
  channel.handle();
  if (kind < 2) {  // a stranger at either side
    send_all(ends[0], bytes, channel);
    FUZZ_CHECK(channel.state() != ControlChannel::State::kOpen);
  } else {
    const FrameSeal seal = open_as_agent(ends[0], channel);
    if (kind == 2) send_all(ends[0], bytes, channel);
    if (kind == 3) send_sealed(ends[0], bytes, channel, seal);
    channel.send(Alive{});
  }
  ::close(ends[0]);
  return 0;
}
