#include "launcher/base/system/descriptors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "launcher/base/errors.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

rlimit original_limit{};
bool is_raised = false;

constexpr std::size_t kLongestRead = 4096;

struct Message {
  iovec data{};
  alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))]{};
  msghdr header{};

  Message(std::string& text, std::size_t descriptors) : data{text.data(), text.size()} {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
  }
};

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  reset();
  fd_ = other.release();
  return *this;
}

void Descriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void close_all_from(int first, bool at_exec) {
  const unsigned flags = at_exec ? CLOSE_RANGE_CLOEXEC : 0;
  if (::syscall(SYS_close_range, static_cast<unsigned>(first), ~0U, flags) == 0) return;
  // For kernels before 5.11.
  const int limit = static_cast<int>(std::min(::sysconf(_SC_OPEN_MAX), 65536L));
  for (int fd = first; fd < limit; ++fd) at_exec ? ::fcntl(fd, F_SETFD, FD_CLOEXEC) : ::close(fd);
}

PipeEnds open_pipe(const char* purpose) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) == 0) return {Descriptor(ends[0]), Descriptor(ends[1])};
  throw LaunchError(kExitFailed,
                    fmt::format("cannot {}: {}; raise ulimit -n", purpose, error_text(errno)));
}

std::array<Descriptor, 2> socket_pair() {
  int ends[2] = {-1, -1};
  ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

Descriptor open_null_device(int flags) {
  Descriptor fd(::open("/dev/null", flags | O_CLOEXEC));
  if (fd.get() >= 0) return fd;
  const char* tip = errno == EMFILE || errno == ENFILE
                        ? "raise ulimit -n"
                        : "a container needs its devices: start it with a /dev";
  throw LaunchError(kExitFailed, "cannot open /dev/null: " + error_text(errno) + "; " + tip);
}

bool same_file(int a, int b) {
  struct stat first {
  }, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

std::size_t descriptor_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (is_raised || ::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
    return;
  original_limit = limit;
  limit.rlim_cur = limit.rlim_max;
  is_raised = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

void restore_descriptor_limit() {
  if (is_raised) ::setrlimit(RLIMIT_NOFILE, &original_limit);
}

bool pass_descriptors(int socket, std::initializer_list<int> fds, std::string text) {
  Message message(text, fds.size());
  cmsghdr* part = CMSG_FIRSTHDR(&message.header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(part), std::data(fds), fds.size() * sizeof(int));
  return ::sendmsg(socket, &message.header, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

int receive_descriptor(int socket, std::string* text) {
  std::string buffer(text ? kLongestRead : 1, '\0');
  Message message(buffer, 1);
  const ssize_t got = ::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got <= 0) {
    if (got == 0) errno = 0;
    return -1;
  }
  if (text) *text = buffer.substr(0, static_cast<std::size_t>(got));
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
