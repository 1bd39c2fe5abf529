#include "trainer/app/plan/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "trainer/config/config.h"
#include "trainer/metrics/text.h"
#include "trainer/model/model_division.h"

namespace ddp::train {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

std::string in_seconds(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g}ms", 1000 * seconds) : fmt::format("{:.3g}s", seconds);
}

/// The column that adds up an item; "other" has all that are not here.
std::string column_of(const std::string& item) {
  static const std::map<std::string, std::string> columns = {{"weights", "weights"},
                                                             {"collected_weights", "weights"},
                                                             {"weight_copies", "weights"},
                                                             {"table_copy", "weights"},
                                                             {"gradients", "gradients"},
                                                             {"ddp_buckets", "gradients"},
                                                             {"gradient_buckets", "gradients"},
                                                             {"optimizer", "optimizer"},
                                                             {"averaged_weights", "optimizer"},
                                                             {"activations", "activations"},
                                                             {"logits", "activations"}};
  const auto found = columns.find(item);
  return found == columns.end() ? "other" : found->second;
}

const Row kMemory = {"weights", "gradients", "optimizer", "activations", "other"};

Row row_of(const ParallelPlan& plan, bool cuda) {
  std::map<std::string, int64_t> bytes;
  for (const MemoryItem& item : plan.items)
    bytes[column_of(item.name)] += counts(item, cuda) ? item.bytes : 0;
  Row row = {plan.name(), fmt::format("{}", plan.data), in_bytes(plan.memory_bytes)};
  for (const std::string& column : kMemory) row.push_back(in_bytes(bytes[column]));
  row.push_back(short_number(plan.time.sent_bytes) + "B");
  row.push_back(in_seconds(plan.time.total_s()));
  row.push_back(plan.largest_batch > 0 ? fmt::format("{}", plan.largest_batch) : "-");
  row.push_back(fmt::format("{}: {}", plan.fits ? "yes" : "no", plan.reason));
  return row;
}

/// The first and the last column to the left, figures to the right.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}", row.front(), widths.front());
    for (std::size_t i = 1; i + 1 < row.size(); ++i)
      text += fmt::format("  {:>{}}", row[i], widths[i]);
    text += fmt::format("  {}\n", row.back());
  }
  return text;
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
  std::map<std::string, std::size_t> places;
  for (const ParallelPlan& plan : answer.plans) {
    const auto [place, is_new] = places.try_emplace(group_of(plan), best.size());
    if (is_new) best.push_back(&plan);
    const ParallelPlan*& now = best[place->second];
    if (rank(plan) > rank(*now)) now = &plan;
  }
  return best;
}

/// Rows for the accepted ones, and lines for the others by their reasons.
std::string table(const PlanAnswer& answer) {
  std::vector<Row> rows = {{"strategy", "data", "memory"}};
  rows[0].insert(rows[0].end(), kMemory.begin(), kMemory.end());
  for (const char* title : {"sent", "step", "batch up to", "fits"}) rows[0].emplace_back(title);
  std::map<std::string, std::string> refused;
  for (const ParallelPlan* plan : best_of_groups(answer)) {
    if (plan->accepted) {
      rows.push_back(row_of(*plan, answer.cuda));
      continue;
    }
    std::string& names = refused[plan->reason];
    names += fmt::format("{}{}", names.empty() ? "" : ", ", group_of(*plan));
  }
  std::string text = fmt::format("\n{}\n", aligned(rows));
  for (const auto& [reason, names] : refused)
    text += fmt::format("Not possible: {}: {}\n", names, reason);
  return refused.empty() ? text : text += "\n";
}

Json as_json(const ParallelPlan& plan, bool cuda) {
  const DistributedConfig& how = plan.config.distributed;
  Json kinds = Json::object();
  for (const MemoryItem& item : plan.items)
    if (counts(item, cuda)) kinds[item.name] = item.bytes;
  return {{"strategy", name_of(how.strategy)},
          {"tensor", how.tensor},
          {"pipeline", how.pipeline},
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
  std::map<std::string, std::string> sections;
  for (const std::string& change : overrides) {
    const auto dot = change.find('.'), equal = change.find('=');
    sections[change.substr(0, dot)] += fmt::format(
        "  {}: {}\n", change.substr(dot + 1, equal - dot - 1), change.substr(equal + 1));
  }
  std::string text;
  for (const auto& [section, keys] : sections) text += fmt::format("{}:\n{}", section, keys);
  return text;
}

}  // namespace

std::string plan_text(const PlanAnswer& answer) {
  std::string text;
  for (const std::string& fact : answer.facts) text += fact + "\n";
  text += table(answer);
  if (!answer.choice) return text + "Nothing fits.\n" + answer.way_out + "\n";
  const ParallelPlan& choice = *answer.choice;
  return text + fmt::format("Choice: {} on {}, {} a step, {} on each.\n\n{}", choice.name(),
                            counted(choice.data * ranks_of_copy(choice.config.distributed), "rank"),
                            in_seconds(choice.time.total_s()), in_bytes(choice.memory_bytes),
                            yaml_of(answer.overrides));
}

std::string plan_json(const PlanAnswer& answer) {
  Json plans = Json::array();
  for (const ParallelPlan& plan : answer.plans) plans.push_back(as_json(plan, answer.cuda));
  Json choice = answer.choice ? as_json(*answer.choice, answer.cuda) : Json(nullptr);
  if (answer.choice) choice["overrides"] = answer.overrides;
  return Json{{"plans", plans}, {"choice", choice}}.dump(2) + "\n";
}

}  // namespace ddp::train
