#include "trainer/app/plan/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "trainer/metrics/text.h"

namespace ddp::train {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

std::string in_seconds(double seconds) {
  constexpr double kMilli = 1e-3;
  return seconds < 1 ? fmt::format("{:.3g}ms", seconds / kMilli) : fmt::format("{:.3g}s", seconds);
}

/// Columns of the table and the items that each one adds up; the last one has all others.
struct MemoryColumn {
  std::string_view title;
  std::vector<std::string_view> items;
};

const std::vector<MemoryColumn>& memory_columns() {
  static const std::vector<MemoryColumn> columns = {
      {"weights", {"weights", "collected_weights", "weight_copies", "table_copy"}},
      {"gradients", {"gradients", "ddp_buckets", "gradient_buckets"}},
      {"optimizer", {"optimizer", "averaged_weights"}},
      {"activations", {"activations", "logits"}},
      {"other", {}}};
  return columns;
}

std::size_t column_of(const MemoryItem& item) {
  const auto& columns = memory_columns();
  const auto found = std::find_if(columns.begin(), columns.end() - 1, [&](const auto& column) {
    return std::find(column.items.begin(), column.items.end(), item.name) != column.items.end();
  });
  return static_cast<std::size_t>(found - columns.begin());
}

std::vector<int64_t> memory_by_column(const ParallelPlan& plan, bool cuda) {
  std::vector<int64_t> bytes(memory_columns().size(), 0);
  for (const MemoryItem& item : plan.items)
    bytes[column_of(item)] += counts(item, cuda) ? item.bytes : 0;
  return bytes;
}

Row headings() {
  Row row = {"strategy", "data", "memory"};
  for (const MemoryColumn& column : memory_columns()) row.emplace_back(column.title);
  for (const char* title : {"sent", "step", "batch up to", "fits"}) row.emplace_back(title);
  return row;
}

Row row_of(const ParallelPlan& plan, bool cuda) {
  Row row = {plan.name(), fmt::format("{}", plan.data), in_bytes(plan.memory_bytes)};
  for (const int64_t bytes : memory_by_column(plan, cuda)) row.push_back(in_bytes(bytes));
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

bool divides_model(const ParallelPlan& plan) { return !plan.division.leaves_model_whole(); }

bool is_better(const ParallelPlan& plan, const ParallelPlan& than) {
  if (plan.fits != than.fits) return plan.fits;
  if (plan.fits) return plan.time.total_s() < than.time.total_s();
  return plan.memory_bytes < than.memory_bytes;
}

/// All that leave the model whole; of those that divide it among equally many ranks in the same way
/// the best, or the one that is chosen.
std::vector<const ParallelPlan*> shown(const PlanAnswer& answer) {
  const auto chosen = [&](const ParallelPlan& plan) {
    return answer.choice && plan.division == answer.choice->division;
  };
  std::vector<const ParallelPlan*> rows;
  std::map<std::pair<int64_t, int64_t>, std::size_t> places;
  for (const ParallelPlan& plan : answer.plans) {
    if (divides_model(plan) && !plan.accepted) continue;
    const std::pair ranks(plan.division.tensor, plan.division.pipeline);
    const auto [place, is_new] = places.try_emplace(ranks, rows.size());
    if (is_new || !divides_model(plan))
      rows.push_back(&plan);
    else if (chosen(plan) ||
             (!chosen(*rows[place->second]) && is_better(plan, *rows[place->second])))
      rows[place->second] = &plan;
  }
  return rows;
}

/// "Not possible: " and the divisions that the trainer refuses altogether, by their first reason.
std::string refused(const std::vector<ParallelPlan>& plans) {
  std::map<std::pair<int64_t, int64_t>, const ParallelPlan*> first;
  for (const ParallelPlan& plan : plans) {
    if (!divides_model(plan)) continue;
    const std::pair ranks(plan.division.tensor, plan.division.pipeline);
    const auto [place, is_new] = first.try_emplace(ranks, &plan);
    if (plan.accepted) place->second = nullptr;
  }
  std::vector<std::pair<std::string, std::string>> reasons;  // with the divisions of each
  for (const auto& [ranks, plan] : first) {
    if (plan == nullptr) continue;
    const std::string name = fmt::format("tensor={} pipeline={}", ranks.first, ranks.second);
    const auto known = std::find_if(reasons.begin(), reasons.end(),
                                    [&](const auto& entry) { return entry.first == plan->reason; });
    if (known == reasons.end())
      reasons.emplace_back(plan->reason, name);
    else
      known->second += ", " + name;
  }
  std::string text;
  for (const auto& [reason, names] : reasons)
    text += fmt::format("Not possible: {}: {}\n", names, reason);
  return text.empty() ? text : text + "\n";
}

Json as_json(const ParallelPlan& plan, bool cuda) {
  Json kinds = Json::object();
  for (const MemoryItem& item : plan.items)
    if (counts(item, cuda)) kinds[item.name] = item.bytes;
  return {{"strategy", plan.strategy_name()},
          {"tensor", plan.division.tensor},
          {"pipeline", plan.division.pipeline},
          {"data", plan.data},
          {"memory_bytes", plan.memory_bytes},
          {"step_seconds", plan.time.total_s()},
          {"fits", plan.fits},
          {"reason", plan.reason},
          {"sequence_parallel", plan.division.sequence_parallel},
          {"pipeline_schedule", name_of(plan.division.schedule)},
          {"pipeline_chunks", plan.division.chunks},
          {"accepted", plan.accepted},
          {"memory_by_kind", kinds},
          {"sent_bytes", plan.time.sent_bytes},
          {"idle_share", plan.time.idle_share},
          {"seconds_by_kind",
           {{"computation", plan.time.compute_s},
            {"communication", plan.time.exposed_s},
            {"bubble", plan.time.bubble_s},
            {"update", plan.time.update_s}}}};
}

/// "" unless several plans fit and none of them is clearly faster than another.
std::string noise_note(const std::vector<ParallelPlan>& plans) {
  std::vector<double> times;
  for (const ParallelPlan& plan : plans)
    if (plan.fits) times.push_back(plan.time.total_s());
  if (times.size() < 2) return "";
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  if (*least < kClearlyFaster * *most) return "";
  return fmt::format(
      "The {} plans that fit take equally long within 5 %, which such an estimate cannot tell "
      "apart.\n",
      times.size());
}

/// A plan and "overrides", which make a training follow it.
Json as_json(const std::optional<ParallelPlan>& choice, bool cuda) {
  if (!choice) return nullptr;
  Json json = as_json(*choice, cuda);
  json["overrides"] = {fmt::format("distributed_config.strategy={}", choice->strategy_name())};
  for (const std::string& change : choice->changes) json["overrides"].push_back(change);
  return json;
}

}  // namespace

std::string plan_yaml(const ParallelPlan& plan) {
  std::map<std::string, std::string> sections = {
      {"distributed_config", fmt::format("  strategy: {}\n", plan.strategy_name())}};
  for (const std::string& change : plan.changes) {
    const auto dot = change.find('.');
    const auto equal = change.find('=');
    sections[change.substr(0, dot)] += fmt::format(
        "  {}: {}\n", change.substr(dot + 1, equal - dot - 1), change.substr(equal + 1));
  }
  std::string text;
  for (const auto& [section, keys] : sections) text += fmt::format("{}:\n{}", section, keys);
  return text;
}

std::string plan_text(const PlanAnswer& answer) {
  std::string text;
  for (const std::string& fact : answer.facts) text += fact + "\n";
  std::vector<Row> rows = {headings()};
  for (const ParallelPlan* plan : shown(answer)) rows.push_back(row_of(*plan, answer.cuda));
  text += fmt::format("\n{}\n{}", aligned(rows), refused(answer.plans));
  if (!answer.choice) {
    text += "Nothing fits.\n";
    for (const std::string& way : answer.ways_out) text += way + "\n";
    return text;
  }
  const ParallelPlan& choice = *answer.choice;
  return text + fmt::format("Choice: {} on {}, {} a step, {} on each.\n{}\n{}", choice.name(),
                            counted(choice.data * choice.division.tensor * choice.division.pipeline,
                                    "rank"),
                            in_seconds(choice.time.total_s()), in_bytes(choice.memory_bytes),
                            noise_note(answer.plans), plan_yaml(choice));
}

std::string plan_json(const PlanAnswer& answer) {
  Json plans = Json::array();
  for (const ParallelPlan& plan : answer.plans) plans.push_back(as_json(plan, answer.cuda));
  return Json{{"plans", plans}, {"choice", as_json(answer.choice, answer.cuda)}}.dump(2) + "\n";
}

}  // namespace ddp::train
