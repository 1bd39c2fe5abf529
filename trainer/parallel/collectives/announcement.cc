#include "trainer/parallel/collectives/announcement.h"

#include <exception>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ddp::train {

void announce(const StorePart& part, bool is_main, std::chrono::seconds patience) {
  if (!part.store) return;
  try {
    if (is_main)
      part.store->set("announced", std::vector<uint8_t>{1});
    else
      part.store->wait({"announced"}, patience);
  } catch (const std::exception&) {  // the store has gone with the ranks that were lost
  }
}

}  // namespace ddp::train
