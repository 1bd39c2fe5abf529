#include "launcher/rendezvous/round_store.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/sockets.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr int kAcceptedAtOnce = 256;  // then the agent's other work has its turn

}  // namespace

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
  for (int i = 0; i < kAcceptedAtOnce && listener_ >= 0; ++i) {
    const int fd = acceptor_.accept(listener_);
    if (fd < 0) break;
    server_.adopt(fd);
  }
  server_.handle(fds);
}

}  // namespace ddp::launch
