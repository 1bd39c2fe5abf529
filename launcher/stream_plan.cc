#include "launcher/stream_plan.h"

#include <algorithm>

namespace ddp::launch {
namespace {

enum Stream { kOut = 1, kErr = 2 };

std::string expand(std::string text, const StreamPlace& place) {
  const std::string short_host = place.host.substr(0, place.host.find('.'));
  const std::pair<std::string, std::string> macros[] = {
      {"${role_name}", place.role},
      {"${local_rank}", std::to_string(place.local_rank)},
      {"${rank}", std::to_string(place.rank)},
      {"${hostname}", short_host}};
  for (const auto& [macro, value] : macros) {
    for (std::size_t at = 0; (at = text.find(macro, at)) != std::string::npos; at += value.size()) {
      text.replace(at, macro.size(), value);
    }
  }
  return text;
}

StreamPlan plan_stream(const LogOptions& options, const StreamPlace& place, Stream stream) {
  const bool shown =
      options.console_ranks.empty() || options.console_ranks.count(place.local_rank) > 0;
  const bool teed = (options.tee.of(place.local_rank) & stream) != 0;
  const bool redirected = (options.redirects.of(place.local_rank) & stream) != 0;
  StreamPlan plan;
  plan.mode = shown ? StreamMode::Inherit : StreamMode::Discard;
  if (teed || redirected) {
    plan.mode = teed ? StreamMode::Pump : StreamMode::File;
    plan.file = place.folder + (stream == kOut ? "/stdout.log" : "/stderr.log");
  } else if (stream == kErr && options.report_lines > 0) {
    plan.mode = StreamMode::Pump;
  }
  plan.console = plan.mode == StreamMode::Pump && shown;
  plan.by_line = teed;
  if (!teed) return plan;
  plan.prefix = expand(
      options.prefix_template.empty() ? "[${role_name}${local_rank}]:" : options.prefix_template,
      place);
  plan.filters = stream == kOut ? options.stdout_filters : options.stderr_filters;
  if (!plan.filters.empty()) {
    plan.filter_file =
        place.attempt_folder + (stream == kOut ? "/filtered_stdout.log" : "/filtered_stderr.log");
  }
  return plan;
}

}  // namespace

int RankStreams::of(int local_rank) const {
  const auto found = by_rank.find(local_rank);
  return found == by_rank.end() ? all : found->second;
}

bool RankStreams::any() const {
  return all != 0 || std::any_of(by_rank.begin(), by_rank.end(),
                                 [](const auto& entry) { return entry.second != 0; });
}

WorkerStreams plan_streams(const LogOptions& options, const StreamPlace& place) {
  return {plan_stream(options, place, kOut), plan_stream(options, place, kErr)};
}

}  // namespace ddp::launch
