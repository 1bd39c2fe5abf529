#include "launcher/store/store_service.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr int kClientsAtOnce = 256;  // then those who are connected have their turn

bool listens(int socket) {
  int answer = 0;
  socklen_t size = sizeof answer;
  return ::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &answer, &size) == 0 && answer != 0;
}

}  // namespace

StoreService::StoreService(int source) : source_(source), listening_(listens(source)) {}

std::string StoreService::take_note() {
  std::string note = acceptor_.take_warning();
  return note.empty() ? server_.take_note() : note;
}

void StoreService::add_poll_fds(std::vector<pollfd>& fds) const {
  server_.add_poll_fds(fds);
  if (!ended_ && !acceptor_.rests_until()) fds.push_back({source_, POLLIN, 0});
}

void StoreService::handle(const std::vector<pollfd>& fds) {
  acceptor_.wake();
  for (int i = 0; i < kClientsAtOnce && !ended_; ++i) {
    const int fd = next_client();
    if (fd < 0) break;
    server_.adopt(fd);
  }
  server_.handle(fds);
}

std::optional<Clock::time_point> StoreService::deadline() const {
  return earlier(acceptor_.rests_until(), server_.deadline());
}

int StoreService::next_client() {
  if (listening_) return acceptor_.accept(source_);
  const int fd = receive_descriptor(source_);
  ended_ = fd < 0 && errno == 0;
  return fd;
}

void serve_store(int source, int control) {
  StoreService service(source);
  for (;;) {
    std::vector<pollfd> fds{{control, POLLIN, 0}};
    service.add_poll_fds(fds);
    poll_until(fds, service.deadline(), "cannot wait for clients");
    if (fds[0].revents != 0) return;
    service.handle(fds);
    const std::string note = service.take_note();
    if (!note.empty()) ::send(control, note.data(), note.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

}  // namespace ddp::launch
