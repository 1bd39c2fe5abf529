#include "trainer/model/causal_architecture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/model/gpt/gpt_architecture.h"
#include "trainer/model/llama/llama_architecture.h"
#include "trainer/model/load/pretrained_json.h"
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

const CausalArchitecture* architecture_of_folder(const std::string& folder) {
  const std::string file = folder + "/config.json";
  const auto config = parse_pretrained_config(file);
  const std::string type = PretrainedValues(config, file).text("model_type", "");
  std::vector<std::string_view> known = names_of(BertFamily{});
  if (std::find(known.begin(), known.end(), type) != known.end()) return nullptr;
  for (const auto& architecture : registry()) {
    const auto types = architecture->model_types();
    if (std::find(types.begin(), types.end(), type) != types.end()) return architecture.get();
    known.insert(known.end(), types.begin(), types.end());
  }
  throw UserError(fmt::format("{}: model_type is '{}'; this trainer reads {}", file, type,
                              fmt::join(known, ", ")));
}

void add_model_keys() {
  for (const auto& architecture : registry()) architecture->add_keys();
}

void add_causal_architecture(std::unique_ptr<const CausalArchitecture> architecture) {
  registry().push_back(std::move(architecture));
}

}  // namespace ddp::train
