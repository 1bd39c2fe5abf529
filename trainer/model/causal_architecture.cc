#include "trainer/model/causal_architecture.h"

#include <fmt/format.h>

#include <utility>

#include "trainer/model/gpt/gpt_architecture.h"
#include "trainer/model/llama/llama_architecture.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

std::vector<std::unique_ptr<const CausalArchitecture>>& registry() {
  static std::vector<std::unique_ptr<const CausalArchitecture>> all = [] {
    std::vector<std::unique_ptr<const CausalArchitecture>> built_in;
    built_in.push_back(gpt_architecture());
    built_in.push_back(llama_architecture());
    return built_in;
  }();
  return all;
}

}  // namespace

const CausalArchitecture* find_causal_architecture(std::string_view name) {
  for (const auto& architecture : registry()) {
    if (architecture->name() == name) return architecture.get();
  }
  return nullptr;
}

const CausalArchitecture& causal_architecture(const Config& config) {
  if (const auto* found = find_causal_architecture(config.model)) return *found;
  throw UserError(fmt::format("model: this trainer has no model '{}'", config.model));
}

std::vector<const CausalArchitecture*> causal_architectures() {
  std::vector<const CausalArchitecture*> result;
  for (const auto& architecture : registry()) result.push_back(architecture.get());
  return result;
}

void add_model_keys() {
  for (const auto& architecture : registry()) architecture->add_keys();
}

void add_causal_architecture(std::unique_ptr<const CausalArchitecture> architecture) {
  registry().push_back(std::move(architecture));
}

}  // namespace ddp::train
