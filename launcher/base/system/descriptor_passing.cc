#include "launcher/base/system/descriptor_passing.h"

#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <cstring>

namespace ddp::launch {
namespace {

// Each message carries one byte: an empty one would look like end-of-file.
struct Message {
  char byte = 'd';
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

bool pass_descriptor(int socket, int fd) {
  Message message;
  cmsghdr* part = CMSG_FIRSTHDR(&message.header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &fd, sizeof(int));
  return ::sendmsg(socket, &message.header, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

int receive_descriptor(int socket) {
  Message message;
  const ssize_t got = ::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got <= 0) {
    if (got == 0) errno = 0;
    return -1;
  }
  const cmsghdr* part = CMSG_FIRSTHDR(&message.header);
  if (part == nullptr || part->cmsg_type != SCM_RIGHTS) {
    errno = EPROTO;  // as when the process has no descriptor left for it
    return -1;
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
  return fd;
}

}  // namespace ddp::launch
