// The causal models, by the names that `model` in the configuration has for them.
#include <functional>
#include <stdexcept>
#include <utility>

#include "trainer/model/causal_model.h"
#include "trainer/model/gpt/gpt.h"
#include "trainer/model/llama/llama.h"

namespace ddp::train {
namespace {

using Make = std::function<std::shared_ptr<CausalModel>(
    const Config& config, int64_t vocab_size, std::optional<uint64_t> seed, const TensorRanksPtr&)>;

/// Makes a model whose layers cannot be shared.
Make whole_model(MakeCausalModel make) {
  return [make](const Config& config, int64_t vocab_size, std::optional<uint64_t> seed,
                const TensorRanksPtr& ranks) {
    if (ranks) throw std::logic_error("ranks cannot share the layers of " + config.model);
    return make(config, vocab_size, seed);
  };
}

std::vector<std::pair<std::string, Make>>& models() {
  static std::vector<std::pair<std::string, Make>> all = {{"gpt", make_gpt}, {"llama", make_llama}};
  return all;
}

}  // namespace

std::shared_ptr<CausalModel> make_causal_model(const Config& config, int64_t vocab_size,
                                               std::optional<uint64_t> seed,
                                               const TensorRanksPtr& ranks) {
  for (const auto& [name, make] : models()) {
    if (name == config.model) return make(config, vocab_size, seed, ranks);
  }
  throw std::logic_error("no network for model " + config.model);
}

void add_causal_model(const std::string& name, MakeCausalModel make) {
  models().emplace_back(name, whole_model(make));
}

}  // namespace ddp::train
