// A single node: rank 0 of 1. Holds each round's port until the next round.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "launcher/base/worker.h"
#include "launcher/rendezvous/listening_socket.h"
#include "launcher/rendezvous/port_reservation.h"
#include "launcher/rendezvous/rendezvous.h"

namespace ddp::launch {

class StaticRendezvous : public RendezvousHandler {
 public:
  /// master_port 0: a free port, new each round, so that late packets of the old round reach no
  /// one. With `agent_store` a socket already listens on the port; else rank 0 will.
  StaticRendezvous(std::string master_addr, int master_port, bool agent_store);
  RendezvousInfo next_round() override;

 private:
  std::string master_addr_;
  int master_port_;
  bool agent_store_;
  std::optional<PortReservation> held_;
  std::unique_ptr<ListeningSocket> listening_;
};

}  // namespace ddp::launch
