#include "launcher/rendezvous/host/round_store.h"

#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/wire/round_port.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

[[noreturn]] void no_store() {
  throw LaunchError(kExitFailed, "cannot listen for the workers' store: " + error_text(errno));
}

}  // namespace

// Late packets of an old round reach no one at a new port.
int RoundStore::prepare(const std::string& own_address) {
  close();
  if (rank0_) {
    held_ = hold_port(0);
    return port_of(held_.get());
  }
  if (shared_port_ == 0) {
    source_ = Descriptor(listen_for_peers(own_address));
    if (source_.get() < 0) no_store();
    return port_of(source_.get());
  }
  auto [entrance, source] = socket_pair();
  if (entrance.get() < 0) no_store();
  entrance_ = std::move(entrance);
  source_ = std::move(source);
  return shared_port_;
}

void RoundStore::adopt(int fd) {
  waiting_.emplace_back(fd);
  pass_on();
  // The store's process does not take them: descriptors must not run out here.
  if (waiting_.size() > descriptor_limit() / 4) waiting_.pop_front();
}

void RoundStore::close() {
  for (Descriptor* one : {&held_, &source_, &entrance_}) one->reset();
  waiting_.clear();
}

void RoundStore::add_poll_fds(std::vector<pollfd>& fds) const {
  if (!waiting_.empty()) fds.push_back({entrance_.get(), POLLOUT, 0});
}

void RoundStore::handle(const std::vector<pollfd>&) { pass_on(); }

// Clients that arrive between two rounds are dropped.
void RoundStore::pass_on() {
  while (!waiting_.empty()) {
    if (entrance_.get() >= 0 && !pass_descriptors(entrance_.get(), {waiting_.front().get()}) &&
        errno == EAGAIN)
      return;
    waiting_.pop_front();
  }
}

}  // namespace ddp::launch
