#include "launcher/report/failure_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>
#include <iterator>
#include <limits>
#include <utility>

#include "launcher/base/signal_names.h"
#include "launcher/base/text.h"
#include "launcher/report/error_file.h"
#include "launcher/report/run_record.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kLongestReport = 30;
constexpr std::size_t kMessageLines = 8;
constexpr std::size_t kOthersShown = 2;  // of those without an error file
constexpr std::size_t kErrorFilesShown = 8;
constexpr const char* kNothing = "<N/A>";  // torchrun's word

struct LikelyCause {
  int signal;
  const char* words;
};
constexpr LikelyCause kLikelyCauses[] = {
    {SIGKILL, "often the OOM killer (see dmesg), else a kill -9"},
    {SIGSEGV, "invalid memory access"},
    {SIGABRT, "a failed assertion or uncaught exception; see its last output"},
    {SIGBUS, "a mapped file or shared memory was truncated; is /dev/shm or the disk full?"},
    {SIGILL, "an instruction this CPU does not support"},
    {SIGFPE, "an integer division by zero"},
    {SIGTERM, "sent by someone other than ddp-run"},
    {SIGXCPU, "it exceeded its CPU time limit (ulimit -t)"},
    {SIGXFSZ, "it exceeded its file size limit (ulimit -f)"}};

// Field names and layout of torchrun's report, which log scrapers expect.
class Report {
 public:
  void line(const std::string& text) { out_ += text + "\n"; }
  void field(const char* name, const std::string& text) {
    line(fmt::format("  {:<10}: {}", name, text));
  }
  void field(const char* name, const std::vector<std::string>& lines) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i == 0) field(name, lines[i]);
      if (i > 0) line(fmt::format("{:14}{}", "", lines[i]));
    }
  }
  std::size_t lines() const {
    return static_cast<std::size_t>(std::count(out_.begin(), out_.end(), '\n'));
  }
  const std::string& text() const { return out_; }

 private:
  std::string out_;
};

// Python's convention: minus the signal.
std::string exit_and_cause(const ProcessFailure& failure) {
  const int signal = failure.exit.signal;
  const std::string exit =
      fmt::format("{} (pid: {}){}", signal != 0 ? -signal : failure.exit.code, failure.pid,
                  signal != 0 ? " (" + signal_name(signal) + ")" : "");
  const std::string& said = failure.cause;
  const std::string likely = said.empty() ? likely_cause(failure.exit) : said;
  return likely.empty() ? exit : exit + ": " + likely;
}

void add_message(Report& report, const ProcessFailure& failure, const ReportContext& context) {
  auto message = read_error_file(failure.error_file);
  const bool kept = message && !context.logs.empty();
  report.field("error_file", kept ? failure.error_file.path : kNothing);
  if (!message && !failure.message.empty()) message = {failure.message, ""};
  std::vector<std::string> lines;
  if (message)
    lines =
        last_lines(message->callstack.empty() ? message->text : message->callstack, kMessageLines);
  if (lines.empty()) lines.emplace_back(kNothing);
  report.field("traceback", lines);
}

// `most`: the number of lines the report may have up to here.
void add_cause(Report& report, const ProcessFailure& failure, const ReportContext& context,
               std::size_t most) {
  report.line("Root Cause (first observed failure):\n[0]:");
  report.field("time", local_time(failure.time, "%Y-%m-%d_%H:%M:%S"));
  report.field("host", failure.host.empty() ? context.host : failure.host);
  if (!failure.is_worker()) {
    report.field("exitcode", kNothing);
    report.field("cause", failure.cause);
    return;
  }
  report.field("rank", fmt::format("{} (local_rank: {}) of {}", failure.rank, failure.local_rank,
                                   context.world_size));
  report.field("exitcode", exit_and_cause(failure));
  add_message(report, failure, context);
  if (!failure.hang.empty()) report.field("hang", failure.hang);
  if (!failure.heartbeat.empty()) report.field("heartbeat", failure.heartbeat);
  if (!failure.stacks.empty()) report.field("stacks", failure.stacks);
  const std::size_t room = most - std::min(most, report.lines());
  report.field("stderr",
               last_lines(failure.last_stderr, std::min<std::size_t>(room, context.stderr_lines)));
}

// The last line of a worker's error file, after what became of the worker.
std::string other_line(int rank, pid_t pid, const std::string& end, const std::string& words) {
  const auto lines = last_lines(words, 1);
  return fmt::format("rank {} (pid {}): {}{}", rank, pid, end,
                     lines.empty() ? "" : "; error file: " + lines.back());
}

std::string words_of(const ErrorFile& error_file, const std::string& otherwise) {
  const auto message = read_error_file(error_file);
  return message ? message->text : otherwise;
}

// All that wrote an error file, the oldest first, also if they were stopped; then the others.
void add_others(Report& report, const RunResult& result) {
  std::vector<std::pair<double, std::string>> others;
  std::size_t wrote = 0;
  const auto add = [&](const ErrorFile& file, const std::string& line) {
    others.emplace_back(error_file_time(file), line);
    if (others.back().first != std::numeric_limits<double>::infinity()) ++wrote;
  };
  const auto& failures = result.failures;
  for (std::size_t i = 1; i < failures.size(); ++i) {
    const ProcessFailure& one = failures[i];
    add(one.error_file, one.is_worker() ? other_line(one.rank, one.pid, describe(one),
                                                     words_of(one.error_file, one.message))
                                        : one.cause);
  }
  for (const Worker& worker : result.workers) {
    const bool listed = std::any_of(failures.begin(), failures.end(), [&](const auto& failure) {
      return failure.pid == worker.pid && failure.host.empty();
    });
    if (const auto message = read_error_file(worker.error_file); message && !listed)
      add(worker.error_file,
          other_line(worker.rank, worker.pid,
                     worker.state == WorkerState::kFailed ? describe_exit(worker.exit) : "stopped",
                     message->text));
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::size_t most = std::clamp(wrote, kOthersShown, kErrorFilesShown);
  for (std::size_t i = 0; i < std::min(most, others.size()); ++i)
    report.field("also", others[i].second);
  if (others.size() > most) report.field("also", fmt::format("{} more", others.size() - most));
}

// The rest of the report: other failures, restarts, logs.
Report rest_of(const RunResult& result, const ReportContext& context) {
  Report report;
  add_others(report, result);
  if (result.stopped > 0) {
    report.field("stopped", plural(result.stopped, "other worker"));
  }
  if (result.max_restarts > 0) {
    report.field("restarts", fmt::format("{} of {} used{}{}", result.restarts, result.max_restarts,
                                         result.gave_up.empty() ? "" : "; ", result.gave_up));
  }
  if (!context.logs.empty()) report.field("logs", context.logs);
  return report;
}

std::string how_it_ended(const RunResult& result) {
  if (result.outcome != Outcome::kInterrupted) return "ddp-run: the job failed";
  return fmt::format("ddp-run: the job was interrupted by {} after a failure",
                     signal_name(result.signal));
}

}  // namespace

std::string local_time(double unix_seconds, const char* format) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  std::array<char, 64> text{};
  ::localtime_r(&seconds, &parts);
  return {text.data(), std::strftime(text.data(), text.size(), format, &parts)};
}

std::string describe(const ProcessFailure& failure) {
  if (failure.hang.empty()) {
    return describe_exit(failure.exit) +
           (failure.exit.signal == SIGKILL && failure.cause.starts_with("out of memory")
                ? " (out of memory)"
                : "");
  }
  const std::string& waiting = failure.progress.waiting;
  return waiting.empty() ? "hung" : "hung, waiting in " + waiting;
}

std::string failure_json(const ProcessFailure& failure, int attempt) {
  const std::string cause = !failure.hang.empty()      ? "hang"
                            : failure.exit.signal != 0 ? signal_name(failure.exit.signal)
                                                       : describe_exit(failure.exit);
  return fmt::format(R"({{"rank":{},"cause":"{}","time":{:.3f},"attempt":{}}})", failure.rank,
                     cause, failure.time, attempt);
}

std::string likely_cause(const ExitStatus& exit) {
  const int signal = exit.signal != 0 ? exit.signal : exit.code - kExitSignalBase;
  const auto* const found = std::ranges::find(kLikelyCauses, signal, &LikelyCause::signal);
  if (found != std::end(kLikelyCauses)) return found->words;
  if (exit.code == kExitNotFound) return "a program or shared library was not found";
  if (exit.code == kExitNotExecutable) return "a program could not be executed";
  return "";
}

std::string failure_report(const RunResult& result, const ReportContext& context) {
  const ProcessFailure& cause = result.failures.front();
  const std::string headline = how_it_ended(result) + "; first failure: ";
  if (context.one_console && cause.is_worker() && !cause.host.empty()) {
    return fmt::format("{}rank {} on {}, {}; see its report{}\n", headline, cause.rank, cause.host,
                       describe(cause),
                       context.logs.empty() ? "" : "; logs of this node: " + context.logs);
  }
  const Report rest = rest_of(result, context);
  Report report;
  report.line(headline + (cause.is_worker()
                              ? fmt::format("rank {}, {}", cause.rank, describe(cause))
                              : cause.cause));
  add_cause(report, cause, context, kLongestReport - rest.lines());
  return report.text() + rest.text();
}

namespace {

// The table of many workers would bury the cause.
constexpr std::ptrdiff_t kLongestWithTable = 30;

std::string usage_error_line(const std::string& logs) {
  return fmt::format(
      "ddp-run: the job failed: trainer rejected its command line or configuration (exit code {}); "
      "see its message{}\n",
      kExitUsage, logs.empty() ? "" : "; logs: " + logs);
}

bool fits(const std::string& text, const RunResult& result) {
  const auto lines = std::count(text.begin(), text.end(), '\n') + std::ssize(result.workers) + 1;
  return std::ssize(result.workers) > 1 && lines <= kLongestWithTable;
}

}  // namespace

std::string final_report(const RunResult& result, const ReportContext& context) {
  std::string text;
  for (const auto& survivor : result.survivors)
    text += fmt::format("error: {} could not be killed\n", survivor);
  if (result.outcome == Outcome::kPreempted) {
    text += fmt::format(
        "ddp-run: the workers were preempted and saved their state (exit code {}); rerun the same "
        "command to continue\n",
        kExitPreempted);
  }
  if (result.workers.empty() && !result.failures.empty() && !result.failures.front().is_worker())
    return text + fmt::format("error: {}\n", result.failures.front().cause);
  const bool explained = is_explained_usage_error(result) && context.shows_all_ranks;
  const bool reported = !explained && has_failed(result);
  if (explained) text += usage_error_line(context.logs);
  if (reported) text += failure_report(result, context);
  return context.summary || (reported && fits(text, result)) ? text + summary_table(result) : text;
}

}  // namespace ddp::launch
