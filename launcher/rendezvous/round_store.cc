#include "launcher/rendezvous/round_store.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/sockets.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {

RoundStore::~RoundStore() { close_listener(); }

void RoundStore::close_listener() {
  if (listener_ >= 0) ::close(std::exchange(listener_, -1));
}

// Late packets of an old round reach no one at a new port.
int RoundStore::prepare(const std::string& own_address) {
  not_needed();
  if (rank0_) {
    reserved_.emplace(0);
    return reserved_->port();
  }
  if (shared_port_ > 0) return shared_port_;
  listener_ = listen_for_peers(own_address);
  if (listener_ < 0)
    throw LaunchError(kExitFailed, "cannot listen for the workers' store: " + error_text(errno));
  return port_of(listener_);
}

void RoundStore::not_needed() {
  reserved_.reset();
  close_listener();
}

void RoundStore::add_poll_fds(std::vector<pollfd>& fds) const {
  server_.add_poll_fds(fds);
  if (listener_ >= 0 && !acceptor_.rests_until()) fds.push_back({listener_, POLLIN, 0});
}

void RoundStore::handle(const std::vector<pollfd>& fds) {
  acceptor_.wake();
  for (int fd; listener_ >= 0 && (fd = acceptor_.accept(listener_)) >= 0;) server_.adopt(fd);
  server_.handle(fds);
}

}  // namespace ddp::launch
