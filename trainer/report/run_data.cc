#include "trainer/report/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "trainer/metrics/jsonl_sink.h"
#include "trainer/metrics/run_info.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/small_file.h"

namespace ddp::train {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "values are packed as they lie");

/// RFC 4648, section 4.
std::string base64(const std::string& bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve(bytes.size() * 4 / 3 + 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k < bytes.size() + 1 ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

/// Points of [begin, end) that show the stretch: least, greatest, and one that is not finite.
void take_extremes(const Series& series, std::size_t begin, std::size_t end,
                   std::set<std::size_t>& taken) {
  std::size_t least = begin, greatest = begin;
  for (std::size_t i = begin; i < end; ++i) {
    if (!std::isfinite(series.values[i])) {
      taken.insert(i);
      return;
    }
    if (series.values[i] < series.values[least]) least = i;
    if (series.values[i] > series.values[greatest]) greatest = i;
  }
  taken.insert(least);
  taken.insert(greatest);
}

/// Also accepts an empty object: anything but a number has no place in a curve.
int64_t whole_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<int64_t>() : -1;
}

double real_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

void take_line(const Json& line, RunData& run) {
  const int64_t step = whole_at(line, "step");
  const std::string split = text_at(line, "split");
  if (step < 0 || split.empty()) return;
  for (const auto& [key, value] : line.items()) {
    const bool place = key == "step" || key == "epoch" || key == "time" || key == "resumed_from";
    if (place || !(value.is_number() || value.is_null())) continue;
    run.series[split + "/" + key].add(
        step, value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  }
  const int64_t from = whole_at(line, "resumed_from");
  if (from >= 0) run.resumed.push_back(from);
  const double time = real_at(line, "time");
  if (run.records == 0) run.first_time = time;
  run.last_time = std::max(run.last_time, time);
  run.last_step = std::max(run.last_step, step);
  ++run.records;
}

void read_samples(const std::string& path, std::size_t most, RunData& run) {
  std::ifstream file(path, std::ios::binary);
  std::deque<TextRecord> newest;
  for (std::string text; std::getline(file, text);) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object() || whole_at(line, "step") < 0) continue;
    newest.push_back({whole_at(line, "step"), text_at(line, "tag"), text_at(line, "text"),
                      real_at(line, "time")});
    if (newest.size() > most) newest.pop_front();
  }
  run.samples.assign(newest.begin(), newest.end());
}

void read_confusions(const std::string& path, RunData& run) {
  std::ifstream file(path, std::ios::binary);
  for (std::string text; std::getline(file, text);) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object() || whole_at(line, "step") < 0) continue;
    ConfusionMatrix matrix = confusion_in(text);
    if (matrix.empty()) continue;
    const std::string split = text_at(line, "split");
    run.confusions[split] = {whole_at(line, "step"), split, std::move(matrix),
                             real_at(line, "time")};
  }
}

std::string json_object_in(const std::string& path) {
  std::string text = read_small_file(path).value_or("");
  return Json::parse(text, nullptr, false).is_object() ? text : "{}";
}

}  // namespace

void Series::add(int64_t step, double value) {
  if (!steps.empty() && step < steps.back()) return;
  steps.push_back(step);
  values.push_back(value);
}

Series thinned(const Series& series, std::size_t most) {
  constexpr std::size_t kLeast = 4;
  most = std::max(most, kLeast);
  if (series.size() <= most) return series;
  std::set<std::size_t> taken = {0, series.size() - 1};
  const std::size_t stretches = (most - 2) / 2;
  for (std::size_t k = 0; k < stretches; ++k)
    take_extremes(series, series.size() * k / stretches, series.size() * (k + 1) / stretches,
                  taken);
  Series thin;
  for (const std::size_t i : taken) thin.add(series.steps[i], series.values[i]);
  return thin;
}

std::string packed_steps(const Series& series) {
  std::string bytes;
  int64_t before = 0;
  for (const int64_t step : series.steps) {
    auto delta = static_cast<uint64_t>(step - before);
    for (; delta >= 0x80; delta >>= 7) bytes += static_cast<char>(delta | 0x80);
    bytes += static_cast<char>(delta);
    before = step;
  }
  return base64(bytes);
}

std::string packed_values(const Series& series) {
  std::string bytes;
  for (const double value : series.values) {
    const auto single = static_cast<float>(value);
    char raw[sizeof single];
    std::memcpy(raw, &single, sizeof single);
    bytes.append(raw, sizeof single);
  }
  return base64(bytes);
}

std::size_t fair_size(std::vector<std::size_t> sizes, std::size_t budget) {
  std::sort(sizes.begin(), sizes.end());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t share = budget / (sizes.size() - i);
    if (sizes[i] > share) return share;
    budget -= sizes[i];
  }
  return sizes.empty() ? budget : sizes.back();
}

RunData read_run(const std::string& folder, std::size_t most_samples) {
  namespace fs = std::filesystem;
  const std::string path = folder + "/" + JsonlSink::kMetricsFile;
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw UserError(fmt::format("report: {}: no such folder; give the folder of a run", folder));
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw UserError(fmt::format(
        "report: {}: no {} in this folder; give hydra.run.dir of a run that was trained with "
        "logging_config.jsonl=true",
        folder, JsonlSink::kMetricsFile));
  }
  RunData run;
  run.folder = fs::canonical(folder, error).string();
  run.name = run.folder;
  for (std::string text; std::getline(file, text);) {
    const Json line = Json::parse(text, nullptr, false);
    if (line.is_object()) take_line(line, run);
  }
  read_samples(folder + "/" + JsonlSink::kSamplesFile, most_samples, run);
  read_confusions(folder + "/" + JsonlSink::kConfusionFile, run);
  run.info_json = json_object_in(folder + "/" + kRunInfoFile);
  run.summary_json = json_object_in(folder + "/run_summary.json");
  const Json info = Json::parse(run.info_json);
  run.pipeline = read_pipeline_trace(folder, info.value("config", Json::object()).dump());
  return run;
}

}  // namespace ddp::train
