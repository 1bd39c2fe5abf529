// The causal models, by the names that `model` in the configuration has for them.
#include <stdexcept>
#include <utility>

#include "trainer/model/causal_model.h"
#include "trainer/model/gpt/gpt.h"
#include "trainer/model/llama/llama.h"

namespace ddp::train {
namespace {

using NamedModel = std::pair<std::string, MakeCausalModel>;

std::vector<NamedModel>& models() {
  static std::vector<NamedModel> all = {{"gpt", make_gpt}, {"llama", make_llama}};
  return all;
}

}  // namespace

std::shared_ptr<CausalModel> make_causal_model(const Config& config, int64_t vocab_size,
                                               std::optional<uint64_t> seed) {
  for (const auto& [name, make] : models()) {
    if (name == config.model) return make(config, vocab_size, seed);
  }
  throw std::logic_error("no network for model " + config.model);
}

void add_causal_model(const std::string& name, MakeCausalModel make) {
  models().emplace_back(name, make);
}

}  // namespace ddp::train
