#include "trainer/config/param_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <numeric>

#include "trainer/config/config.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// An entry of the configuration and what it is called there.
struct GroupRule {
  std::string key;
  ParamGroup entry;
};

bool matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool matches_any(const ParamGroup& entry, const std::string& name) {
  return std::any_of(entry.patterns.begin(), entry.patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, name); });
}

std::vector<GroupRule> rules_of(const Config& config) {
  std::vector<GroupRule> rules;
  if (!config.trainer.freeze.empty()) {
    ParamGroup frozen;
    frozen.patterns = config.trainer.freeze;
    frozen.frozen = true;
    rules.push_back({"trainer_config.freeze", std::move(frozen)});
  }
  const auto& entries = config.optimizer.param_groups;
  for (std::size_t i = 0; i < entries.size(); ++i)
    rules.push_back({fmt::format("optimizer_config.param_groups[{}]", i), entries[i]});
  return rules;
}

/// The first rule that matches each parameter; the number of rules if none does.
std::vector<std::size_t> first_matches(const std::vector<GroupRule>& rules,
                                       const std::vector<ParameterShape>& parameters) {
  std::vector<std::size_t> result;
  for (const ParameterShape& p : parameters) {
    const auto found = std::find_if(rules.begin(), rules.end(), [&](const GroupRule& rule) {
      return matches_any(rule.entry, p.name);
    });
    result.push_back(static_cast<std::size_t>(found - rules.begin()));
  }
  return result;
}

void check_patterns(const GroupRule& rule, const std::vector<ParameterShape>& parameters) {
  for (const std::string& pattern : rule.entry.patterns) {
    if (std::any_of(parameters.begin(), parameters.end(),
                    [&](const ParameterShape& p) { return matches(pattern, p.name); }))
      continue;
    throw UserError(fmt::format("{}: no parameter matches '{}'; their names look like {} and {}",
                                rule.key, pattern, parameters.front().name,
                                parameters.back().name));
  }
}

/// A rule all of whose parameters belong to earlier ones.
void check_reachable(std::size_t index, const std::vector<GroupRule>& rules,
                     const std::vector<std::size_t>& chosen,
                     const std::vector<ParameterShape>& parameters) {
  if (std::find(chosen.begin(), chosen.end(), index) != chosen.end()) return;
  const GroupRule& rule = rules[index];
  const auto first =
      std::find_if(parameters.begin(), parameters.end(),
                   [&](const ParameterShape& p) { return matches_any(rule.entry, p.name); });
  const GroupRule& taker = rules[chosen[static_cast<std::size_t>(first - parameters.begin())]];
  throw UserError(
      fmt::format("{}: has no effect, as the first match counts and {} already matches {}; {}",
                  rule.key, taker.key, first->name,
                  taker.entry.frozen ? "remove one of them" : "move it before that entry"));
}

double default_decay(ParameterRole role, const OptimizerConfig& optimizer) {
  switch (role) {
    case ParameterRole::kHidden:
    case ParameterRole::kLinear:
      return optimizer.weight_decay;
    case ParameterRole::kEmbedding:
      return optimizer.decay_embeddings ? optimizer.weight_decay : 0.0;
    case ParameterRole::kOther:
      break;
  }
  return 0.0;
}

OptimizerName default_optimizer(const ParameterShape& p, const OptimizerConfig& optimizer) {
  if (optimizer.name != OptimizerName::kMuon) return optimizer.name;
  const bool hidden_matrix = p.role == ParameterRole::kHidden && p.sizes.size() == 2;
  return hidden_matrix ? OptimizerName::kMuon : OptimizerName::kAdamW;
}

GroupOptions default_options(const ParameterShape& p, const OptimizerConfig& optimizer) {
  return {.optimizer = default_optimizer(p, optimizer),
          .weight_decay = default_decay(p.role, optimizer)};
}

GroupOptions options_of(const GroupRule& rule, const ParameterShape& p,
                        const OptimizerConfig& optimizer) {
  const ParamGroup& entry = rule.entry;
  if (entry.frozen) return {.frozen = true};
  GroupOptions options = default_options(p, optimizer);
  options.lr_mult = entry.lr_mult;
  options.weight_decay = entry.weight_decay.value_or(options.weight_decay);
  options.optimizer = entry.optimizer.value_or(options.optimizer);
  if (options.optimizer == OptimizerName::kMuon && p.sizes.size() != 2) {
    throw UserError(
        fmt::format("{}: {} is not a matrix, and Muon updates matrices only; narrow the pattern",
                    rule.key, p.name));
  }
  return options;
}

std::string role_name(ParameterRole role) {
  switch (role) {
    case ParameterRole::kHidden:
      return "hidden matrices";
    case ParameterRole::kLinear:
      return "other linear weights";
    case ParameterRole::kEmbedding:
      return "embeddings";
    case ParameterRole::kOther:
      break;
  }
  return "biases and norms";
}

std::string label_of_roles(const ParameterGroup& group,
                           const std::vector<ParameterShape>& parameters) {
  std::set<ParameterRole> roles;
  for (const std::size_t i : group.members) roles.insert(parameters[i].role);
  std::vector<std::string> names;
  for (const ParameterRole role : roles) names.push_back(role_name(role));
  return fmt::format("{}", fmt::join(names, ", "));
}

void add_member(std::vector<ParameterGroup>& groups, std::size_t first_of_rule,
                const GroupOptions& options, std::size_t member) {
  const auto found =
      std::find_if(groups.begin() + static_cast<std::ptrdiff_t>(first_of_rule), groups.end(),
                   [&](const ParameterGroup& group) { return group.options == options; });
  if (found != groups.end())
    found->members.push_back(member);
  else
    groups.push_back({"", options, {member}});
}

}  // namespace

int64_t ParameterShape::count() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

std::vector<ParameterGroup> resolve_param_groups(const Config& config,
                                                 const std::vector<ParameterShape>& parameters) {
  const std::vector<GroupRule> rules = rules_of(config);
  const std::vector<std::size_t> chosen = first_matches(rules, parameters);
  for (const GroupRule& rule : rules) check_patterns(rule, parameters);
  for (std::size_t i = 0; i < rules.size(); ++i) check_reachable(i, rules, chosen, parameters);
  std::vector<ParameterGroup> groups;
  for (std::size_t rule = 0; rule <= rules.size(); ++rule) {
    const std::size_t first = groups.size();
    const bool by_role = rule == rules.size();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (chosen[i] != rule) continue;
      add_member(groups, first,
                 by_role ? default_options(parameters[i], config.optimizer)
                         : options_of(rules[rule], parameters[i], config.optimizer),
                 i);
    }
    for (std::size_t g = first; g < groups.size(); ++g)
      groups[g].label = by_role ? label_of_roles(groups[g], parameters)
                                : fmt::format("{}", fmt::join(rules[rule].entry.patterns, ", "));
  }
  if (std::all_of(groups.begin(), groups.end(),
                  [](const ParameterGroup& group) { return group.options.frozen; })) {
    throw UserError(fmt::format("{}: every parameter is frozen; leave some to train",
                                rules.empty() ? "" : rules.front().key));
  }
  return groups;
}

std::set<std::string> parameters_without_state(const Config& before, const Config& now,
                                               const std::vector<ParameterShape>& parameters) {
  const auto options_of_each = [&](const Config& config) {
    std::vector<GroupOptions> options(parameters.size());
    for (const auto& group : resolve_param_groups(config, parameters))
      for (const std::size_t i : group.members) options[i] = group.options;
    return options;
  };
  const auto old_options = options_of_each(before);
  const auto new_options = options_of_each(now);
  std::set<std::string> names;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool kept =
        !old_options[i].frozen && old_options[i].optimizer == new_options[i].optimizer;
    if (!new_options[i].frozen && !kept) names.insert(parameters[i].name);
  }
  return names;
}

std::vector<std::string> group_table(const std::vector<ParameterGroup>& groups,
                                     const std::vector<ParameterShape>& parameters) {
  std::vector<std::string> lines = {
      fmt::format("Parameter groups: {:>7}  {:>10}  {:<9}  {:>7}  {:>12}  of", "tensors",
                  "parameters", "optimizer", "lr mult", "weight decay")};
  for (const ParameterGroup& group : groups) {
    int64_t count = 0;
    for (const std::size_t i : group.members) count += parameters[i].count();
    const GroupOptions& o = group.options;
    const std::string how = o.frozen
                                ? fmt::format("{:<32}", "frozen")
                                : fmt::format("{:<9}  {:>7}  {:>12}", facts_of(o.optimizer).name,
                                              o.lr_mult, o.weight_decay);
    lines.push_back(
        fmt::format("{:>25}  {:>10}  {}  {}", group.members.size(), count, how, group.label));
  }
  return lines;
}

int states_of(const GroupOptions& options, const OptimizerConfig& config) {
  const OptimizerFacts& facts = facts_of(options.optimizer);
  return facts.needs_momentum && momentum_of(config) == 0.0 ? 0 : facts.states;
}

bool has_8_bit_state(int64_t elements, const OptimizerConfig& config) {
  constexpr int64_t kSmallest = 4096;
  return config.state_bits == StateBits::k8 && elements >= kSmallest;
}

double state_bytes(int64_t elements, const GroupOptions& options, const OptimizerConfig& config) {
  constexpr int64_t kFloat = 4;
  const int64_t blocks = (elements + kStateBlock - 1) / kStateBlock;
  const int64_t bytes =
      has_8_bit_state(elements, config) ? elements + kFloat * blocks : kFloat * elements;
  return static_cast<double>(states_of(options, config)) * static_cast<double>(bytes);
}

}  // namespace ddp::train
