#include "trainer/model/layer_seeds.h"

#include <mutex>

#include "trainer/runtime/seed.h"

namespace ddp::train {

LayerSeeds::LayerSeeds(torch::Device device, bool active) : active_(active) {
  if (!active_) return;
  generator_ = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator_.mutex());
  seed_ = generator_.current_seed();
}

void LayerSeeds::begin(int64_t layer) {
  if (!active_) return;
  const std::lock_guard lock(generator_.mutex());
  generator_.set_current_seed(layer_seed(seed_, layer));
}

}  // namespace ddp::train
