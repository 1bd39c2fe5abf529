#include "launcher/logs/stream_plan.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace ddp::launch {
namespace {

enum Stream { kOut = 1, kErr = 2 };

std::string prefix_template(const LogOptions& options) {
  return options.prefix_template.empty() ? "[${role_name}${local_rank}]:" : options.prefix_template;
}

// Whether the console or a file gets the stream. Without a folder there is no file for them.
void add_filters(StreamPlan& plan, const LogOptions& options, const StreamPlace& place,
                 Stream stream) {
  if (place.attempt_folder.empty()) return;
  plan.filters = stream == kOut ? options.stdout_filters : options.stderr_filters;
  if (plan.filters.empty()) return;
  plan.filter_file =
      place.attempt_folder + (stream == kOut ? "/filtered_stdout.log" : "/filtered_stderr.log");
  plan.mode = StreamMode::kPump;
}

StreamPlan plan_stream(const LogOptions& options, const StreamPlace& place, Stream stream) {
  const int local_rank = place.worker.local_rank;
  const bool files = !place.folder.empty();
  const bool shown = options.console_ranks.empty() || options.console_ranks.count(local_rank) > 0;
  const bool teed = (options.tee.of(local_rank) & stream) != 0;
  const bool redirected = files && !teed && (options.redirects.of(local_rank) & stream) != 0;
  StreamPlan plan;
  plan.console = shown && !redirected;
  plan.by_line = plan.console && (teed || options.fold.count() > 0);
  if (redirected || (teed && files)) {
    plan.file = place.folder + (stream == kOut ? "/stdout.log" : "/stderr.log");
    plan.rotation = options.rotation;
    const bool copied = teed || plan.rotation.max_bytes > 0 || options.watched;
    plan.mode = copied ? StreamMode::kPump : StreamMode::kFile;
  } else {
    const bool needed = stream == kErr ? options.report_lines > 0 : shown && !options.own_stdout;
    const bool copied = plan.by_line || needed || options.watched;
    plan.mode = copied ? StreamMode::kPump : shown ? StreamMode::kInherit : StreamMode::kDiscard;
  }
  if (shown) add_filters(plan, options, place, stream);
  if (!plan.by_line && plan.filters.empty()) return plan;
  plan.prefix = LinePrefix(prefix_template(options), place.worker);
  if (plan.by_line) plan.fold = options.fold;
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

bool can_share_stdout(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return true;  // closed: nothing to copy to
  return S_ISCHR(status.st_mode) && ::isatty(fd) == 0;
}

WorkerStreams plan_streams(const LogOptions& options, const StreamPlace& place) {
  return {plan_stream(options, place, kOut), plan_stream(options, place, kErr)};
}

}  // namespace ddp::launch
