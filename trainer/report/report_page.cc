#include "trainer/report/report_page.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trainer/config/config.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/runtime/process/start_time.h"

namespace ddp::train {

/// page.html, which the build turns into bytes.
extern const std::string_view kPageTemplate;

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostPoints = 80'000;  // about 6.8 bytes of base64 each
constexpr std::size_t kMostSamples = 20;     // over all runs
constexpr std::size_t kSampleBytes = 4000;
constexpr std::size_t kMostClasses = 31;  // 30 and the others together
constexpr std::size_t kLabelBytes = 80;

/// Cut before a character, not within one.
std::string beginning_of(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<uint8_t>(text[most]) & 0xC0) == 0x80) --most;
  return text.substr(0, most) + " ...";
}

std::size_t points_per_series(const std::vector<RunData>& runs) {
  std::vector<std::size_t> sizes;
  for (const RunData& run : runs) {
    for (const auto& [name, series] : run.series) sizes.push_back(series.size());
  }
  return fair_size(std::move(sizes), kMostPoints);
}

Json series_json(const RunData& run, std::size_t most) {
  Json all = Json::object();
  for (const auto& [name, series] : run.series) {
    const Series thin = thinned(series, most);
    all[name] = {{"steps", packed_steps(thin)}, {"values", packed_values(thin)}};
  }
  return all;
}

Json samples_json(const RunData& run) {
  Json samples = Json::array();
  for (const auto& sample : run.samples)
    samples.push_back({{"step", sample.step},
                       {"tag", sample.tag},
                       {"text", beginning_of(sample.text, kSampleBytes)}});
  return samples;
}

Json confusions_json(const RunData& run) {
  Json all = Json::array();
  for (const auto& [split, record] : run.confusions) {
    const ConfusionMatrix matrix = abbreviated(record.matrix, kMostClasses);
    Json labels = Json::array();
    for (const std::string& label : matrix.labels)
      labels.push_back(beginning_of(label, kLabelBytes));
    all.push_back({{"step", record.step},
                   {"split", split},
                   {"classes", record.matrix.size()},
                   {"labels", std::move(labels)},
                   {"counts", matrix.counts}});
  }
  return all;
}

/// Tenths of a microsecond would be noise; a step of very many passes is not drawn.
Json pipeline_json(const PipelineTrace& trace) {
  constexpr std::size_t kMostPasses = 20'000;
  std::size_t passes = 0;
  for (const auto& rank : trace.ranks) passes += rank.size();
  if (passes == 0 || passes > kMostPasses) return nullptr;
  Json ranks = Json::array();
  for (std::size_t i = 0; i < trace.ranks.size(); ++i) {
    Json bars = Json::array();
    for (const TracedPass& pass : trace.ranks[i])
      bars.push_back(
          {static_cast<int>(pass.kind), std::llround(pass.begin_us), std::llround(pass.end_us)});
    ranks.push_back({{"idle", idle_share(trace, i)}, {"passes", std::move(bars)}});
  }
  return {{"step", trace.step}, {"ranks", std::move(ranks)}};
}

Json run_json(const RunData& run, std::size_t most) {
  const Json info = Json::parse(run.info_json);
  const bool thin = std::any_of(run.series.begin(), run.series.end(),
                                [most](const auto& entry) { return entry.second.size() > most; });
  return {{"name", run.name},
          {"folder", run.folder},
          {"series", series_json(run, most)},
          {"thinned", thin},
          {"resumed", run.resumed},
          {"records", run.records},
          {"last_step", run.last_step},
          {"first_time", run.first_time},
          {"last_time", run.last_time},
          {"config", info.value("config", Json::object())},
          {"environment", info.value("environment", Json::object())},
          {"summary", Json::parse(run.summary_json)},
          {"samples", samples_json(run)},
          {"confusions", confusions_json(run)},
          {"pipeline", pipeline_json(run.pipeline)}};
}

/// Escaped for a <script>: no text of a run can end the element.
std::string script_safe(const Json& json) {
  std::string safe;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

/// What tells the folders apart: their paths below the deepest folder that holds all of them; of a
/// single run its own name.
void name_runs(std::vector<RunData>& runs) {
  namespace fs = std::filesystem;
  fs::path above = fs::path(runs.front().folder).parent_path();
  const auto holds = [&above](const RunData& run) {
    const fs::path below = fs::path(run.folder).lexically_relative(above);
    return !below.empty() && *below.begin() != "..";
  };
  while (above.has_relative_path() && !std::all_of(runs.begin(), runs.end(), holds))
    above = above.parent_path();
  for (RunData& run : runs) run.name = fs::path(run.folder).lexically_relative(above).string();
}

}  // namespace

std::string report_page(const std::vector<RunData>& runs, double made, const std::string& program) {
  constexpr std::string_view kMark = "@DATA@";
  const std::size_t most = points_per_series(runs);
  Json all = {{"made", made},
              {"program", program},
              {"defaults", Json::parse(config_to_json(Config{}))},
              {"runs", Json::array()}};
  for (const RunData& run : runs) all["runs"].push_back(run_json(run, most));
  std::string page(kPageTemplate);
  return page.replace(page.find(kMark), kMark.size(), script_safe(all));
}

void write_report(const std::vector<std::string>& folders, const std::string& output,
                  const std::string& program) {
  std::vector<RunData> runs;
  for (const std::string& folder : folders)
    runs.push_back(read_run(folder, std::max<std::size_t>(1, kMostSamples / folders.size())));
  name_runs(runs);
  publish_text(output, report_page(runs, unix_seconds(), program));
}

}  // namespace ddp::train
