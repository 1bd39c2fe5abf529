#include "launcher/rendezvous/store_server/socket_handover.h"

#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <cstring>

namespace ddp::launch {
namespace {

// Each message carries one byte: an empty one would look like end-of-file.
struct Message {
  char byte = 's';
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr header{};

  Message() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
};

}  // namespace

bool hand_over_socket(int control, int listening_socket) {
  Message message;
  cmsghdr* part = CMSG_FIRSTHDR(&message.header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &listening_socket, sizeof(int));
  return ::sendmsg(control, &message.header, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

int take_served_reports(int control, bool& ended) {
  int reports = 0;
  char byte;
  ssize_t got = 0;
  while ((got = ::recv(control, &byte, 1, MSG_DONTWAIT)) == 1) ++reports;
  ended = got == 0 || (errno != EAGAIN && errno != EINTR);
  return reports;
}

int receive_socket(int control) {
  Message message;
  ssize_t got = 0;
  do {
    got = ::recvmsg(control, &message.header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) {
    if (got == 0) errno = 0;
    return -1;
  }
  const cmsghdr* part = CMSG_FIRSTHDR(&message.header);
  if (part == nullptr || part->cmsg_type != SCM_RIGHTS) {
    errno = EPROTO;
    return -1;
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
  return fd;
}

void report_served(int control) {
  const char byte = 'r';
  [[maybe_unused]] const auto sent = ::send(control, &byte, 1, MSG_NOSIGNAL);
}

}  // namespace ddp::launch
