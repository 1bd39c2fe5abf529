#include "launcher/rendezvous/wire/round_port.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/base/system/sockets.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

[[noreturn]] void port_taken(int port, int error) {
  if (error == EMFILE || error == ENFILE) {
    throw LaunchError(kExitFailed,
                      fmt::format("cannot open a socket for --master-port: {}; raise ulimit -n",
                                  error_text(error)));
  }
  usage_error(fmt::format("--master-port={}: {}; choose another port, or omit it to get a free one",
                          port, error_text(error)));
}

}  // namespace

Descriptor hold_port(int port) {
  Descriptor socket(bind_socket(bind_plans(""), port));
  if (socket.get() < 0) port_taken(port, errno);
  return socket;
}

Descriptor listen_for_workers(const std::string& master_addr, int port) {
  Descriptor socket(bind_socket(bind_plans(master_addr), port));
  if (socket.get() < 0) port_taken(port, errno);
  ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  // All workers may queue here before the first is served; the kernel caps this at somaxconn.
  if (::listen(socket.get(), 65535) != 0) port_taken(port, errno);
  return socket;
}

void refuse_waiting(int listener) {
  for (int fd; (fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) ::close(fd);
}

}  // namespace ddp::launch
