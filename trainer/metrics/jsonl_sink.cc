#include "trainer/metrics/jsonl_sink.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Json = nlohmann::ordered_json;

/// Every line that JsonlSink writes begins so: most need no parser.
constexpr std::string_view kStart = R"({"step":)";

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : std::string("null");
}

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string line_of(const MetricRecord& record, int64_t resumed_from) {
  std::string line = fmt::format(R"({}{},"epoch":{},"split":{})", kStart, record.step,
                                 number(record.epoch), quoted(record.split));
  for (const auto& [name, value] : record.values)
    line += fmt::format(",{}:{}", quoted(name), number(value));
  if (resumed_from > 0) line += fmt::format(R"(,"resumed_from":{})", resumed_from);
  return line + fmt::format(",\"time\":{:.3f}}}\n", record.time);
}

std::string line_of(const TextRecord& record) {
  return fmt::format("{}{},\"tag\":{},\"text\":{},\"time\":{:.3f}}}\n", kStart, record.step,
                     quoted(record.tag), quoted(record.text), record.time);
}

std::string line_of(const ConfusionRecord& record) {
  return fmt::format("{}{},\"split\":{},{},\"time\":{:.3f}}}\n", kStart, record.step,
                     quoted(record.split), confusion_members(record.matrix), record.time);
}

/// Bytes of a file up to the first line of a step after `step`, or to the end of its last whole
/// line.
int64_t bytes_to_keep(const std::string& path, int64_t step) {
  std::ifstream file(path, std::ios::binary);
  int64_t kept = 0;
  for (std::string line; std::getline(file, line);) {
    const bool torn = file.eof();  // no end of line
    if (torn || step_of_line(line) > step) break;
    kept += static_cast<int64_t>(line.size()) + 1;
  }
  return kept;
}

std::unique_ptr<AppendFile> open_after(const std::string& path, int64_t step) {
  auto file = std::make_unique<AppendFile>(path);
  const int64_t kept = bytes_to_keep(path, step);
  if (step == 0 && kept < file->size()) {
    if (std::rename(path.c_str(), (path + ".old").c_str()) != 0)
      throw RunError(fmt::format("cannot rename {}: {}", path, std::strerror(errno)));
    return std::make_unique<AppendFile>(path);
  }
  if (kept < file->size()) file->truncate(kept);
  return file;
}

}  // namespace

int64_t step_of_line(const std::string& line) {
  if (line.starts_with(kStart)) {
    int64_t step = -1;
    const char* end = line.data() + line.size();
    const auto result = std::from_chars(line.data() + kStart.size(), end, step);
    if (result.ec == std::errc() && result.ptr != end && (*result.ptr == ',' || *result.ptr == '}'))
      return step;
  }
  const Json object = Json::parse(line, nullptr, false);
  const bool has_step = object.is_object() && object.contains("step");
  return has_step && object["step"].is_number() ? object["step"].get<int64_t>() : -1;
}

JsonlSink::JsonlSink(std::string folder) : folder_(std::move(folder)) {}

void JsonlSink::begin_after(int64_t step) {
  files_.clear();
  resumed_from_ = step;
  for (const char* name : {kMetricsFile, kSamplesFile, kConfusionFile}) {
    const std::string path = folder_ + "/" + name;
    if (name == kMetricsFile || std::ifstream(path).good()) files_[name] = open_after(path, step);
  }
}

void JsonlSink::append(const char* name, const std::string& line) {
  auto& file = files_[name];
  if (!file) file = std::make_unique<AppendFile>(folder_ + "/" + name);
  file->append(line);
}

void JsonlSink::write(const MetricRecord& record) {
  append(kMetricsFile, line_of(record, resumed_from_));
  resumed_from_ = 0;
}

void JsonlSink::write_text(const TextRecord& record) { append(kSamplesFile, line_of(record)); }

void JsonlSink::write_confusion(const ConfusionRecord& record) {
  append(kConfusionFile, line_of(record));
}

}  // namespace ddp::train
