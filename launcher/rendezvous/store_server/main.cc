// ddp-store hosts the workers' store, torch's own c10d::TCPStore, on listening sockets from
// ddp-run. A separate program, so that ddp-run needs no LibTorch.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "launcher/rendezvous/store_server/socket_handover.h"

namespace {

constexpr int kControl = STDIN_FILENO;

struct Endpoint {
  std::string host;  // numeric
  uint16_t port = 0;
};

// Where the store's own client connects: the socket's address, or loopback if it is bound to all.
Endpoint endpoint_of(int fd) {
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  } address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, &address.any, &size);
  char text[INET6_ADDRSTRLEN] = "";
  if (address.any.sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &address.v6.sin6_addr, text, sizeof text);
    return {IN6_IS_ADDR_UNSPECIFIED(&address.v6.sin6_addr) ? "127.0.0.1" : text,
            ntohs(address.v6.sin6_port)};
  }
  ::inet_ntop(AF_INET, &address.v4.sin_addr, text, sizeof text);
  return {address.v4.sin_addr.s_addr == INADDR_ANY ? "127.0.0.1" : text,
          ntohs(address.v4.sin_port)};
}

// The store takes ownership of the socket.
c10::intrusive_ptr<c10d::TCPStore> serve(int fd) {
  const Endpoint endpoint = endpoint_of(fd);
  c10d::TCPStoreOptions options;
  options.port = endpoint.port;
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = fd;
  return c10::make_intrusive<c10d::TCPStore>(endpoint.host, options);
}

int fail(const std::string& what, int code) {
  std::fprintf(stderr, "error: %s\n", what.c_str());
  return code;
}

// To stop a job, stop its workers; the store ends with ddp-run.
void ignore_signals() {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP}) {
    ::signal(signal, SIG_IGN);
  }
}

}  // namespace

int main(int argc, char**) {
  ignore_signals();
  c10::intrusive_ptr<c10d::TCPStore> store;
  for (;;) {
    const int fd = argc > 1 ? -1 : ddp::launch::receive_socket(kControl);
    if (argc > 1 || (fd < 0 && errno != 0))
      return fail("ddp-store is started by ddp-run, not by hand", 2);
    if (fd < 0) std::_Exit(0);  // ddp-run is gone, and with it all clients of the store
    try {
      store.reset();  // of the previous round
      store = serve(fd);
    } catch (const c10::Error& error) {
      return fail(std::string("ddp-store: ") + error.what_without_backtrace(), 1);
    } catch (const std::exception& error) {
      return fail(std::string("ddp-store: ") + error.what(), 1);
    }
    ddp::launch::report_served(kControl);
  }
}
