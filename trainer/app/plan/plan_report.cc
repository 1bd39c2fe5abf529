#include "trainer/app/plan/parallel_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "trainer/hydra/override/overrides.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/metrics/text.h"
#include "trainer/model/model_division.h"

namespace ddp::train {
namespace {

using Json = nlohmann::ordered_json;

std::string in_seconds(double seconds) {
  if (seconds < 1) return fmt::format("{:.3g}ms", 1000 * seconds);
  return seconds < 1000 ? fmt::format("{:.3g}s", seconds) : fmt::format("{:.0f}s", seconds);
}

/// The strategy of a whole model; of one that ranks divide "tensor=2 pipeline=4".
std::string group_of(const ParallelPlan& plan) {
  const DistributedConfig& how = plan.config.distributed;
  return ranks_of_copy(how) == 1 ? std::string(name_of(how.strategy))
                                 : fmt::format("tensor={} pipeline={}", how.tensor, how.pipeline);
}

/// For each group the choice, or else the best plan.
std::vector<const ParallelPlan*> best_of_groups(const PlanAnswer& answer) {
  const std::string choice = answer.choice ? answer.choice->name() : "";
  const auto rank = [&](const ParallelPlan& plan) {
    return std::tuple(plan.name() == choice, plan.accepted, plan.fits,
                      plan.fits ? -plan.time.total_s() : -static_cast<double>(plan.memory_bytes));
  };
  std::vector<const ParallelPlan*> best;
  for (const ParallelPlan& plan : answer.plans) {  // those of a group follow each other
    if (best.empty() || group_of(*best.back()) != group_of(plan))
      best.push_back(&plan);
    else if (rank(plan) > rank(*best.back()))
      best.back() = &plan;
  }
  return best;
}

/// Rows for the accepted ones, and lines for the others by their reasons.
std::string table(const PlanAnswer& answer) {
  const auto best = best_of_groups(answer);
  std::size_t width = 8;  // of "strategy"
  for (const ParallelPlan* plan : best)
    if (plan->accepted) width = std::max(width, plan->name().size());
  constexpr std::string_view kRow = "{:<{}}  {:>4}  {:>8}  {:>8}  {:>6}  {:>11}  {}\n";
  std::string text =
      fmt::format(kRow, "strategy", width, "data", "memory", "sent", "step", "batch up to", "fits");
  std::map<std::string, std::vector<std::string>> refused;
  for (const ParallelPlan* plan : best) {
    if (!plan->accepted) {
      refused[plan->reason].push_back(group_of(*plan));
      continue;
    }
    text += fmt::format(kRow, plan->name(), width, plan->data, in_bytes(plan->memory_bytes),
                        short_number(plan->time.sent_bytes) + "B", in_seconds(plan->time.total_s()),
                        plan->largest_batch > 0 ? fmt::format("{}", plan->largest_batch) : "-",
                        fmt::format("{}: {}", plan->fits ? "yes" : "no", plan->reason));
  }
  if (!refused.empty()) text += "\n";
  for (const auto& [reason, names] : refused)
    text += fmt::format("Not possible: {}: {}\n", fmt::join(names, ", "), reason);
  return text;
}

Json as_json(const ParallelPlan& plan) {
  const DistributedConfig& how = plan.config.distributed;
  Json kinds = Json::object();
  for (const MemoryItem& item : plan.items) kinds[item.name] = item.bytes;
  return {{"strategy", name_of(how.strategy)},
          {"tensor", how.tensor},
          {"pipeline", how.pipeline},
          {"expert", how.expert},
          {"data", plan.data},
          {"memory_bytes", plan.memory_bytes},
          {"step_seconds", plan.time.total_s()},
          {"fits", plan.fits},
          {"reason", plan.reason},
          {"sequence_parallel", how.sequence_parallel},
          {"pipeline_schedule", name_of(how.pipeline_schedule)},
          {"pipeline_chunks", how.pipeline_chunks},
          {"accepted", plan.accepted},
          {"memory_by_kind", kinds},
          {"sent_bytes", plan.time.sent_bytes},
          {"seconds_by_kind",
           {{"computation", plan.time.compute_s},
            {"communication", plan.time.exposed_s},
            {"bubble", plan.time.bubble_s},
            {"update", plan.time.update_s}}}};
}

/// "distributed_config.strategy=zero1" as a line of its section.
std::string yaml_of(const std::vector<std::string>& overrides) {
  Node root = Node::map();
  for (const std::string& change : overrides) {
    const Override parsed = parse_override(change);
    set_path(root, parsed.key, parsed.value);
  }
  return node_to_yaml(root);
}

}  // namespace

std::string plan_text(const PlanAnswer& answer, const std::vector<std::string>& facts) {
  const std::string text = fmt::format("{}\n\n{}\n", fmt::join(facts, "\n"), table(answer));
  if (!answer.choice) return text + "Nothing fits.\n" + answer.way_out + "\n";
  const ParallelPlan& choice = *answer.choice;
  return text + fmt::format("Choice: {} on {}, {} a step, {} on each.\n\n{}", choice.name(),
                            counted(choice.data * ranks_of_copy(choice.config.distributed), "rank"),
                            in_seconds(choice.time.total_s()), in_bytes(choice.memory_bytes),
                            yaml_of(answer.overrides));
}

std::string plan_json(const PlanAnswer& answer) {
  Json plans = Json::array();
  for (const ParallelPlan& plan : answer.plans) plans.push_back(as_json(plan));
  Json choice = answer.choice ? as_json(*answer.choice) : Json(nullptr);
  if (answer.choice) choice["overrides"] = answer.overrides;
  return Json{{"plans", plans}, {"choice", choice}}.dump(2) + "\n";
}

}  // namespace ddp::train
