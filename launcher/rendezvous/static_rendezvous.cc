#include "launcher/rendezvous/static_rendezvous.h"

#include <utility>

namespace ddp::launch {

StaticRendezvous::StaticRendezvous(std::string master_addr, int master_port, bool agent_store)
    : master_addr_(std::move(master_addr)), master_port_(master_port), agent_store_(agent_store) {}

RendezvousInfo StaticRendezvous::next_round() {
  RendezvousInfo info;
  info.master_addr = master_addr_;
  info.agent_store = agent_store_;
  // Choose a free port while still holding the old one, so that they differ.
  if (agent_store_) {
    if (!listening_ || master_port_ == 0)
      listening_ = std::make_unique<ListeningSocket>(master_addr_, master_port_);
    info.master_port = listening_->port();
    info.store_socket = listening_->fd();
  } else {
    if (!held_ || master_port_ == 0) held_ = PortReservation(master_port_);
    info.master_port = held_->port();
  }
  return info;
}

}  // namespace ddp::launch
