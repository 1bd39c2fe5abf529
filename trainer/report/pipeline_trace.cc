#include "trainer/report/pipeline_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace ddp::train {
namespace {

using TraceJson = nlohmann::json;

constexpr std::string_view kStep = "ProfilerStep#";

/// The kind of pass that the trainer traces by that name.
std::optional<TracedKind> kind_of(std::string_view name) {
  if (name == "forward") return TracedKind::kForward;
  if (name == "backward") return TracedKind::kBackward;
  return std::nullopt;
}

bool is_wanted(const TraceJson& event) {
  const auto name = event.find("name");
  if (name == event.end() || !name->is_string() || event.value("cat", "") != "user_annotation")
    return false;
  const auto& text = name->get_ref<const std::string&>();
  return kind_of(text) || text.starts_with(kStep);
}

/// The events of a trace that tell of steps and passes. A trace has very many others: they are
/// dropped while it is read.
std::vector<TraceJson> wanted_events(const std::string& path) {
  constexpr int kEventDepth = 2;
  std::ifstream file(path, std::ios::binary);
  const auto keep = [](int depth, TraceJson::parse_event_t parsed, TraceJson& value) {
    return depth != kEventDepth || parsed != TraceJson::parse_event_t::object_end ||
           is_wanted(value);
  };
  const TraceJson trace = TraceJson::parse(file, keep, /*allow_exceptions=*/false);
  const auto events = trace.is_object() ? trace.find("traceEvents") : trace.end();
  if (!trace.is_object() || events == trace.end() || !events->is_array()) return {};
  std::vector<TraceJson> wanted;
  for (const TraceJson& event : *events) {
    const bool timed = event.is_object() && event.contains("ts") && event["ts"].is_number() &&
                       event.contains("dur") && event["dur"].is_number();
    if (timed && is_wanted(event)) wanted.push_back(event);
  }
  return wanted;
}

double begin_of(const TraceJson& event) { return event["ts"].get<double>(); }
double end_of(const TraceJson& event) { return begin_of(event) + event["dur"].get<double>(); }

/// Passes by step.
std::map<int64_t, std::vector<TracedPass>> passes_by_step(const std::string& path) {
  const auto events = wanted_events(path);
  std::map<int64_t, std::vector<TracedPass>> steps;
  for (const TraceJson& step : events) {
    const std::string name = step["name"];
    if (!name.starts_with(kStep)) continue;
    auto& passes = steps[std::atoll(name.c_str() + kStep.size())];
    for (const TraceJson& event : events) {
      const bool within = begin_of(event) >= begin_of(step) && end_of(event) <= end_of(step);
      const auto kind = kind_of(event["name"].get_ref<const std::string&>());
      if (within && kind) passes.push_back({*kind, begin_of(event), end_of(event)});
    }
    std::sort(passes.begin(), passes.end(), [](const TracedPass& one, const TracedPass& two) {
      return one.begin_us < two.begin_us;
    });
  }
  return steps;
}

void start_at_zero(PipelineTrace& trace) {
  double first = std::numeric_limits<double>::infinity();
  for (const auto& passes : trace.ranks)
    for (const TracedPass& pass : passes) first = std::min(first, pass.begin_us);
  for (auto& passes : trace.ranks) {
    for (TracedPass& pass : passes) {
      pass.begin_us -= first;
      pass.end_us -= first;
    }
  }
}

}  // namespace

PipelineTrace read_pipeline_trace(const std::string& folder, const std::string& config_json) {
  const TraceJson config = TraceJson::parse(config_json, nullptr, false);
  const TraceJson how =
      config.is_object() ? config.value("distributed_config", TraceJson::object()) : TraceJson();
  if (!how.is_object()) return {};
  const auto stages = how.value("pipeline", int64_t{1});
  const auto tensor = how.value("tensor", int64_t{1});
  if (stages < 2) return {};
  std::vector<std::map<int64_t, std::vector<TracedPass>>> ranks;
  for (int64_t stage = 0; stage < stages; ++stage)
    ranks.push_back(passes_by_step(fmt::format("{}/profile_rank_{}.json", folder, stage * tensor)));
  for (auto last = ranks.front().rbegin(); last != ranks.front().rend(); ++last) {
    const int64_t step = last->first;
    const bool in_all = std::all_of(ranks.begin(), ranks.end(), [step](const auto& steps) {
      return steps.contains(step) && !steps.at(step).empty();
    });
    if (!in_all) continue;
    PipelineTrace trace{step, {}};
    for (auto& steps : ranks) trace.ranks.push_back(std::move(steps.at(step)));
    start_at_zero(trace);
    return trace;
  }
  return {};
}

double idle_share(const PipelineTrace& trace, std::size_t rank) {
  double end = 0.0;
  for (const auto& passes : trace.ranks)
    for (const TracedPass& pass : passes) end = std::max(end, pass.end_us);
  double busy = 0.0;
  for (const TracedPass& pass : trace.ranks[rank]) busy += pass.end_us - pass.begin_us;
  return end > 0.0 ? 1.0 - busy / end : 0.0;
}

}  // namespace ddp::train
