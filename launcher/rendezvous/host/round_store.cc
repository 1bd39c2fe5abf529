#include "launcher/rendezvous/host/round_store.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/sockets.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

[[noreturn]] void no_store() {
  throw LaunchError(kExitFailed, "cannot listen for the workers' store: " + error_text(errno));
}

}  // namespace

RoundStore::~RoundStore() { close(); }

// Late packets of an old round reach no one at a new port.
int RoundStore::prepare(const std::string& own_address) {
  close();
  if (rank0_) {
    reserved_.emplace(0);
    return reserved_->port();
  }
  if (shared_port_ == 0) {
    source_ = listen_for_peers(own_address);
    if (source_ < 0) no_store();
    return port_of(source_);
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    no_store();
  entrance_ = ends[0];
  source_ = ends[1];
  return shared_port_;
}

void RoundStore::adopt(int fd) {
  waiting_.push_back(fd);
  pass_on();
  // The store's process does not take them: descriptors must not run out here.
  if (waiting_.size() <= descriptor_limit() / 4) return;
  ::close(waiting_.front());
  waiting_.pop_front();
}

void RoundStore::close() {
  reserved_.reset();
  close_descriptor(source_);
  close_descriptor(entrance_);
  for (int fd : waiting_) ::close(fd);
  waiting_.clear();
}

void RoundStore::add_poll_fds(std::vector<pollfd>& fds) const {
  if (!waiting_.empty()) fds.push_back({entrance_, POLLOUT, 0});
}

void RoundStore::handle(const std::vector<pollfd>&) { pass_on(); }

// Clients that arrive between two rounds are dropped.
void RoundStore::pass_on() {
  while (!waiting_.empty()) {
    if (entrance_ >= 0 && !pass_descriptor(entrance_, waiting_.front()) && errno == EAGAIN) return;
    ::close(waiting_.front());
    waiting_.pop_front();
  }
}

}  // namespace ddp::launch
