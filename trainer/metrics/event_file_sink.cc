#include "trainer/metrics/event_file_sink.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "trainer/metrics/event_messages.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/process/host_name.h"
#include "trainer/runtime/process/start_time.h"

namespace ddp::train {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

/// Seconds in the name of the newest file there, 0 without one.
int64_t newest_in(const std::string& folder) {
  int64_t newest = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    int64_t seconds = 0;
    if (!name.starts_with(kPrefix)) continue;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), seconds);
    newest = std::max(newest, seconds);
  }
  return newest;
}

/// TensorBoard reads the files of a folder in the order of their names, and goes on to the next one
/// for good: a clock that was set back must not put this one before the others.
std::string next_file(const std::string& folder, double now) {
  const int64_t seconds = std::max(static_cast<int64_t>(now), newest_in(folder) + 1);
  return fmt::format("{}/{}{:010}.{}.{}", folder, kPrefix, seconds, host_name(), ::getpid());
}

}  // namespace

EventFileSink::EventFileSink(std::string folder, std::string config)
    : folder_(std::move(folder)), config_(std::move(config)) {}

void EventFileSink::append(const std::string& event) {
  if (!file_) {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error) throw RunError(fmt::format("cannot create {}: {}", folder_, error.message()));
    const double now = unix_seconds();
    file_ = std::make_unique<AppendFile>(next_file(folder_, now));
    file_->append(framed(version_event(now)));
  }
  file_->append(framed(event));
}

void EventFileSink::begin_after(int64_t step) {
  const bool first = !file_;
  // A step 0 may have an evaluation: a run that begins anew begins with it.
  append(start_event(unix_seconds(), step == 0 ? 0 : step + 1));
  if (first && !config_.empty()) write_text({step, "config", config_, unix_seconds()});
}

void EventFileSink::write(const MetricRecord& record) { append(scalars_event(record)); }

void EventFileSink::write_text(const TextRecord& record) {
  TextRecord shown = record;
  shown.text = as_markdown_code(record.text);
  append(text_event(shown));
}

void EventFileSink::write_histogram(const HistogramRecord& record) {
  append(histogram_event(record));
}

std::string as_markdown_code(std::string_view text) {
  std::string code = "    ";
  for (const char c : text) {
    code += c;
    if (c == '\n') code += "    ";
  }
  return code;
}

}  // namespace ddp::train
