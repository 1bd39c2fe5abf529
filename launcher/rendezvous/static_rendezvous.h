// One node: it is rank 0 of 1, and holds the port of each round until the next.
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
  /// master_port 0: a free one, a new one each round, so that a late packet of the old round meets
  /// nobody. With `agent_store` the port comes with a socket that listens on it, else rank 0 will.
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
