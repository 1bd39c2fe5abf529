// Which parameter is trained how, as a table.
#include "trainer/config/param_groups.h"
#include "trainer/config/config.h"

#include <fmt/format.h>

#include <map>

#include "tests/support/catch.h"
#include "tests/trainer/user_error.h"

namespace ddp::train {
namespace {

using Catch::Contains;

std::vector<ParameterShape> small_model() {
  return {{"wte.weight", {65, 8}, ParameterRole::kEmbedding},
          {"h.0.fc.weight", {32, 8}, ParameterRole::kHidden},
          {"h.0.fc.bias", {32}, ParameterRole::kOther},
          {"h.1.fc.weight", {8, 32}, ParameterRole::kHidden},
          {"h.1.fc.bias", {8}, ParameterRole::kOther},
          {"conv.weight", {4, 2, 3, 3}, ParameterRole::kLinear},
          {"head.weight", {65, 8}, ParameterRole::kLinear}};
}

ParamGroup group_of(const std::string& pattern, double lr_mult = 1.0) {
  ParamGroup group;
  group.patterns = {pattern};
  group.lr_mult = lr_mult;
  return group;
}

ParamGroup frozen_group(const std::string& pattern) {
  ParamGroup group = group_of(pattern);
  group.frozen = true;
  return group;
}

/// "frozen", or "adamw x0.1 decay 0".
std::string text_of(const GroupOptions& options) {
  if (options.frozen) return "frozen";
  return fmt::format("{} x{} decay {}", facts_of(options.optimizer).name, options.lr_mult,
                     options.weight_decay);
}

/// What becomes of each parameter of the small model; each must be in one group.
std::map<std::string, std::string> table_of(const Config& config) {
  const auto parameters = small_model();
  std::map<std::string, std::string> table;
  for (const auto& group : resolve_param_groups(config, parameters)) {
    for (const std::size_t i : group.members)
      CHECK(table.emplace(parameters[i].name, text_of(group.options)).second);
  }
  CHECK(table.size() == parameters.size());
  return table;
}

std::string refusal_of(const Config& config) {
  return ddp::test::user_error_of([&] { resolve_param_groups(config, small_model()); });
}

}  // namespace

TEST_CASE("by default linear weights are decayed, and embeddings where it is asked for") {
  Config config;
  std::map<std::string, std::string> expected = {
      {"wte.weight", "adamw x1 decay 0"},   {"h.0.fc.weight", "adamw x1 decay 0.1"},
      {"h.0.fc.bias", "adamw x1 decay 0"},  {"h.1.fc.weight", "adamw x1 decay 0.1"},
      {"h.1.fc.bias", "adamw x1 decay 0"},  {"conv.weight", "adamw x1 decay 0.1"},
      {"head.weight", "adamw x1 decay 0.1"}};
  CHECK(table_of(config) == expected);
  CHECK(resolve_param_groups(config, small_model()).size() == 2);
  config.optimizer.decay_embeddings = true;
  expected["wte.weight"] = "adamw x1 decay 0.1";
  CHECK(table_of(config) == expected);
}

TEST_CASE("by default Muon updates the hidden matrices, AdamW the rest") {
  Config config;
  config.optimizer.name = OptimizerName::kMuon;
  CHECK(table_of(config) ==
        std::map<std::string, std::string>{{"wte.weight", "adamw x1 decay 0"},
                                           {"h.0.fc.weight", "muon x1 decay 0.1"},
                                           {"h.0.fc.bias", "adamw x1 decay 0"},
                                           {"h.1.fc.weight", "muon x1 decay 0.1"},
                                           {"h.1.fc.bias", "adamw x1 decay 0"},
                                           {"conv.weight", "adamw x1 decay 0.1"},
                                           {"head.weight", "adamw x1 decay 0.1"}});
}

TEST_CASE("the first matching entry counts, and keeps the default of what it does not set") {
  Config config;
  config.optimizer.name = OptimizerName::kMuon;
  config.trainer.freeze = {"h.0.fc.bias"};
  ParamGroup head = group_of("head.*", 0.5);
  head.optimizer = OptimizerName::kMuon;
  ParamGroup blocks = group_of("h.0.*", 0.1);
  blocks.patterns.emplace_back("wte.*");
  ParamGroup rest = group_of("*");
  rest.weight_decay = 0.3;
  rest.optimizer = OptimizerName::kAdamW;
  config.optimizer.param_groups = {head, blocks, frozen_group("conv.*"), rest};
  CHECK(table_of(config) ==
        std::map<std::string, std::string>{{"wte.weight", "adamw x0.1 decay 0"},
                                           {"h.0.fc.weight", "muon x0.1 decay 0.1"},
                                           {"h.0.fc.bias", "frozen"},
                                           {"h.1.fc.weight", "adamw x1 decay 0.3"},
                                           {"h.1.fc.bias", "adamw x1 decay 0.3"},
                                           {"conv.weight", "frozen"},
                                           {"head.weight", "muon x0.5 decay 0.1"}});
}

TEST_CASE("an entry before one that freezes everything names what is trained") {
  Config config;
  config.optimizer.param_groups = {group_of("head.*"), frozen_group("*")};
  const auto table = table_of(config);
  CHECK(table.at("head.weight") == "adamw x1 decay 0.1");
  CHECK(table.at("h.1.fc.weight") == "frozen");
}

TEST_CASE("an entry that cannot be meant is refused in one line with its place") {
  Config config;
  config.optimizer.param_groups = {group_of("h.*", 0.1), group_of("h.9.*", 0.1)};
  CHECK(refusal_of(config) ==
        "optimizer_config.param_groups[1]: no parameter matches 'h.9.*'; their names look like "
        "wte.weight and head.weight");
  config.optimizer.param_groups = {group_of("h.*", 0.1), group_of("h.0.*", 0.5)};
  CHECK(refusal_of(config) ==
        "optimizer_config.param_groups[1]: has no effect, as the first match counts and "
        "optimizer_config.param_groups[0] already matches h.0.fc.weight; move it before that "
        "entry");
  config.trainer.freeze = {"wte.*"};
  config.optimizer.param_groups = {group_of("wte.*", 0.5)};
  CHECK_THAT(refusal_of(config), Contains("param_groups[0]: has no effect") &&
                                     Contains("trainer_config.freeze already matches wte.weight") &&
                                     Contains("remove one of them"));
  config.trainer.freeze.clear();
  config.optimizer.param_groups = {frozen_group("*")};
  CHECK_THAT(refusal_of(config), Contains("every parameter is frozen"));
  config.optimizer.name = OptimizerName::kMuon;
  config.optimizer.param_groups = {group_of("conv.*")};
  config.optimizer.param_groups[0].optimizer = OptimizerName::kMuon;
  CHECK_THAT(refusal_of(config), Contains("conv.weight is not a matrix"));
}

TEST_CASE("patterns of one list may overlap") {
  Config config;
  config.trainer.freeze = {"h.*", "h.0.*"};
  CHECK(table_of(config).at("h.1.fc.bias") == "frozen");
}

TEST_CASE("the table names optimizer, factors and numbers of each group") {
  Config config;
  config.optimizer.param_groups = {frozen_group("wte.*"), group_of("h.0.*", 0.1)};
  const auto parameters = small_model();
  CHECK(group_table(resolve_param_groups(config, parameters), parameters) ==
        std::vector<std::string>{
            "Parameter groups: tensors  parameters  optimizer  lr mult  weight decay  of",
            "                        1         520  frozen                            wte.*",
            "                        1         256  adamw          0.1           0.1  h.0.*",
            "                        1          32  adamw          0.1             0  h.0.*",
            "                        3         848  adamw            1           0.1  hidden "
            "matrices, other linear weights",
            "                        1           8  adamw            1             0  biases and "
            "norms"});
}

TEST_CASE("what was frozen or had another optimizer has no state to continue with") {
  Config before;
  before.optimizer.name = OptimizerName::kMuon;
  before.trainer.freeze = {"wte.*"};
  Config now;
  now.optimizer.name = OptimizerName::kMuon;
  now.optimizer.param_groups = {group_of("h.1.fc.weight"), group_of("h.*", 0.1),
                                frozen_group("head.*")};
  now.optimizer.param_groups[0].optimizer = OptimizerName::kAdamW;
  CHECK(parameters_without_state(before, now, small_model()) ==
        std::set<std::string>{"h.1.fc.weight", "wte.weight"});
  CHECK(parameters_without_state(before, before, small_model()).empty());
}

}  // namespace ddp::train
