#include "launcher/static_rendezvous.h"

#include <utility>

namespace ddp::launch {

StaticRendezvous::StaticRendezvous(std::string master_addr, int master_port)
    : master_addr_(std::move(master_addr)), master_port_(master_port) {}

RendezvousInfo StaticRendezvous::next_round() {
  // A free port is chosen while the old one is still held: it cannot be the same.
  if (!held_ || master_port_ == 0) held_ = PortReservation(master_port_);
  return {.group_rank = 0,
          .group_world_size = 1,
          .master_addr = master_addr_,
          .master_port = held_->port()};
}

}  // namespace ddp::launch
