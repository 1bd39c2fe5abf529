#include "trainer/model/blocks/layer_seeds.h"

#include <mutex>
#include <utility>

#include "trainer/runtime/seed.h"

namespace ddp::train {
namespace {

LayerGenerators* in_use = nullptr;

}  // namespace

LayerGenerators::LayerGenerators(torch::Device device)
    : default_(at::globalContext().defaultGenerator(device)), before_layers_(default_.clone()) {}

void LayerGenerators::seed(uint64_t dropout_seed) {
  seed_ = dropout_seed;
  before_layers_.set_current_seed(seed_);
  for (auto& [layer, generator] : of_layers_) generator.set_current_seed(layer_seed(seed_, layer));
}

std::vector<at::Generator> LayerGenerators::all() const {
  std::vector<at::Generator> generators = {before_layers_};
  for (const auto& [layer, generator] : of_layers_) generators.push_back(generator);
  return generators;
}

void LayerGenerators::begin(int64_t layer) {
  auto found = of_layers_.find(layer);
  if (found == of_layers_.end()) {
    found = of_layers_.emplace(layer, before_layers_.clone()).first;
    found->second.set_current_seed(layer_seed(seed_, layer));
  }
  draw_from(found->second);
}

void LayerGenerators::draw_from(const at::Generator& generator) {
  const std::lock_guard lock(default_.mutex());
  default_.graphsafe_set_state(generator);
}

LayerGenerators::Use::Use(LayerGenerators& generators)
    : before_(generators.default_.graphsafe_get_state()) {
  in_use = &generators;
  generators.draw_from(generators.before_layers_);
}

LayerGenerators::Use::~Use() { std::exchange(in_use, nullptr)->draw_from(before_); }

LayerSeeds::LayerSeeds(torch::Device device, bool active) : active_(active) {
  if (!active_ || in_use != nullptr) return;
  generator_ = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator_.mutex());
  seed_ = generator_.current_seed();
}

void LayerSeeds::begin(int64_t layer) {
  if (!active_) return;
  if (in_use != nullptr) return in_use->begin(layer);
  const std::lock_guard lock(generator_.mutex());
  generator_.set_current_seed(layer_seed(seed_, layer));
}

}  // namespace ddp::train
