#include "trainer/runtime/process/warm_spare.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "launcher/worker_contract.h"
#include "trainer/runtime/process/start_time.h"

namespace ddp::train {
namespace {

using Streams = std::array<int, 3>;

ssize_t receive(int socket, std::string& text, Streams& streams) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(Streams))> control{};
  iovec part{text.data(), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (got <= 0 || header == nullptr || header->cmsg_len != CMSG_LEN(sizeof streams)) return 0;
  std::memcpy(streams.data(), CMSG_DATA(header), sizeof streams);
  return got;
}

void take_environment(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::string setting = text.c_str() + at;
    at += setting.size() + 1;
    const auto equals = setting.find('=');
    if (equals != std::string::npos)
      ::setenv(setting.substr(0, equals).c_str(), setting.c_str() + equals + 1, 1);
  }
}

void take_streams(const Streams& streams) {
  for (int target = 0; target < 3; ++target) {
    const int source = streams[static_cast<std::size_t>(target)];
    ::dup2(source, target);
    ::close(source);
  }
}

}  // namespace

bool is_warm_spare() { return std::getenv(launch::kSpareFd) != nullptr; }

bool become_worker() {
  const int socket = std::atoi(std::getenv(launch::kSpareFd));
  ::unsetenv(launch::kSpareFd);
  std::string text(launch::kLongestHandover, '\0');
  Streams streams{};
  ssize_t got = 0;
  if (::send(socket, "ready", 5, MSG_NOSIGNAL) > 0) got = receive(socket, text, streams);
  ::close(socket);
  if (got <= 0) return false;
  text.resize(static_cast<std::size_t>(got));
  take_environment(text);
  take_streams(streams);
  count_as_started_now();
  return true;
}

}  // namespace ddp::train
