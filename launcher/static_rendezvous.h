// One node: it is rank 0 of 1, and holds the port of each round until the next.
#pragma once

#include <optional>
#include <string>

#include "launcher/port_reservation.h"
#include "launcher/rendezvous.h"

namespace ddp::launch {

class StaticRendezvous : public RendezvousHandler {
 public:
  /// master_port 0: a free one, a new one each round, so that a late packet of the old round meets
  /// nobody.
  StaticRendezvous(std::string master_addr, int master_port);
  RendezvousInfo next_round() override;

 private:
  std::string master_addr_;
  int master_port_;
  std::optional<PortReservation> held_;
};

}  // namespace ddp::launch
