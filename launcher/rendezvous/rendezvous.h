// How the nodes of a job find each other before each round.
#pragma once

#include "launcher/base/worker.h"

namespace ddp::launch {

class RendezvousHandler {
 public:
  virtual ~RendezvousHandler() = default;
  /// Called before each round; everything it returns is new.
  virtual RendezvousInfo next_round() = 0;
};

}  // namespace ddp::launch
