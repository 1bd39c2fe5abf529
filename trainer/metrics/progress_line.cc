#include "trainer/metrics/progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "trainer/metrics/text.h"

namespace ddp::train {
namespace {

constexpr std::size_t kWidestBar = 20;
constexpr std::size_t kNarrowestBar = 4;

std::string steps_and_bar(const Progress& progress, std::size_t bar) {
  if (progress.last_step <= 0) return fmt::format("step {}", progress.step);
  const double share = std::clamp(
      static_cast<double>(progress.step) / static_cast<double>(progress.last_step), 0.0, 1.0);
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(bar));
  const std::string drawn =
      bar == 0 ? ""
               : fmt::format("[{}{}] ", std::string(filled, '#'), std::string(bar - filled, '-'));
  return fmt::format("{}/{} {}{:3.0f} %", progress.step, progress.last_step, drawn,
                     std::floor(100.0 * share));
}

/// In the order in which they matter.
std::vector<std::string> parts_of(const Progress& progress, std::size_t bar) {
  std::vector<std::string> parts = {fmt::format("Epoch {}", progress.epoch),
                                    steps_and_bar(progress, bar)};
  if (progress.loss) parts.push_back(fmt::format("loss {:.4f}", *progress.loss));
  if (progress.eval_loss) parts.push_back(fmt::format("val {:.4f}", *progress.eval_loss));
  if (progress.seconds_left) parts.push_back(duration_text(*progress.seconds_left) + " left");
  if (progress.per_second > 0)
    parts.push_back(fmt::format("{} {}/s", short_number(progress.per_second),
                                progress.unit == "tokens" ? "tok" : progress.unit));
  parts.push_back(fmt::format("lr {:.1e}", progress.learning_rate));
  if (progress.memory > 0)
    parts.push_back(short_number(static_cast<double>(progress.memory)) + "B");
  return parts;
}

}  // namespace

// What is left of the width is the bar's: what is known of the run comes first.
std::string progress_line(const Progress& progress, int width) {
  constexpr std::string_view kBetween = " | ";
  const auto most = static_cast<std::size_t>(std::max(0, width));
  const std::string all = fmt::format("{}", fmt::join(parts_of(progress, 0), kBetween));
  const std::size_t around_bar = all.size() + std::string_view("[] ").size();
  const std::size_t room = most > around_bar ? most - around_bar : 0;
  const std::size_t bar = room < kNarrowestBar ? 0 : std::min(room, kWidestBar);
  std::string line;
  for (const std::string& part : parts_of(progress, bar)) {
    const std::size_t between = line.empty() ? 0 : kBetween.size();
    if (line.size() + between + part.size() > most) break;
    if (between > 0) line += kBetween;
    line += part;
  }
  return line;
}

std::string duration_text(double seconds) {
  constexpr int64_t kMinute = 60, kHour = 3600, kDay = 86400;
  constexpr double kLongest = 1e9;
  const auto whole = static_cast<int64_t>(std::clamp(seconds, 0.0, kLongest));
  if (whole >= kDay) return fmt::format("{} d {} h", whole / kDay, whole % kDay / kHour);
  if (whole >= kHour)
    return fmt::format("{}:{:02}:{:02}", whole / kHour, whole % kHour / kMinute, whole % kMinute);
  return fmt::format("{}:{:02}", whole / kMinute, whole % kMinute);
}

}  // namespace ddp::train
