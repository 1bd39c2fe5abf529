#include "launcher/report/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <vector>

#include "launcher/base/text.h"
#include "launcher/report/advice.h"
#include "launcher/report/error_file.h"
#include "launcher/report/failure_report.h"
#include "launcher/report/next_steps.h"
#include "launcher/report/past_run.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kLinesOfLog = 8;

std::string clock_text(double unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  return fmt::format("{:02}:{:02}:{:02}", parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::vector<std::string> last_lines_of(const std::string& text, std::size_t most) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    if (end > begin)
      lines.push_back(printable(text.substr(begin, std::min<std::size_t>(end - begin, 300))));
    begin = end + 1;
  }
  const std::size_t before = lines.size() - std::min(lines.size(), most);
  lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(before));
  return lines;
}

std::string text_of(const std::vector<std::string>& lines, std::string_view indent) {
  std::string text;
  for (const auto& line : lines) text += fmt::format("{}{}\n", indent, line);
  return text;
}

// A remedy, else the way to the cause.
std::string what_to_do(const ProcessFailure& failure, const Traces& traces) {
  std::vector<std::string> lines = advice_for(failure, traces.words);
  if (lines.empty()) lines = next_steps(failure, traces);
  std::string text = "What to do:\n";
  for (const auto& line : lines) text += "  " + line + "\n";
  return text;
}

std::string worker_folder(const PastRun& run, const ProcessFailure& failure) {
  const bool here = !run.folder.empty() && run.had(failure);
  return here ? fmt::format("{}/attempt_{}/{}", run.folder, run.result.attempt, failure.local_rank)
              : "";
}

// Of a rank: what the record does not hold.
struct Logs {
  std::string shown;   // their ends, under their paths
  std::string words;   // the same lines alone
  std::string output;  // the first that holds anything: errors go to stderr, if that was kept
};

Logs logs_of(const std::string& folder, bool knows_stderr) {
  Logs logs;
  if (folder.empty()) return logs;
  for (const std::string name : {"/stderr.log", "/stdout.log"}) {
    const std::string end = end_of_log(folder + name);
    if (end.empty()) continue;
    if (logs.output.empty()) logs.output = folder + name;
    if (knows_stderr && name == "/stderr.log") continue;
    const auto lines = last_lines_of(end, kLinesOfLog);
    logs.shown += fmt::format("  end of {}{}:\n{}", folder, name, text_of(lines, "    "));
    logs.words += text_of(lines, "");
  }
  return logs;
}

std::string earlier_rounds(const RunResult& result) {
  std::string text;
  for (const auto& [attempt, cause] : result.earlier) {
    const std::string who =
        cause.rank >= 0 ? fmt::format("rank {} on {}, ", cause.rank, cause.host) : "";
    text +=
        fmt::format("  attempt {}, {}: {}{}\n", attempt, clock_text(cause.time), who, cause.cause);
  }
  return text.empty() ? "" : "Before that:\n" + text;
}

std::string words_of(const ProcessFailure& failure, const std::string& logs) {
  const auto message = read_error_file(failure.error_file);
  return failure.last_stderr + "\n" + failure.message + "\n" +
         (message ? message->text + "\n" + message->callstack : "") + "\n" + logs;
}

std::string failed_run(const PastRun& run) {
  const RunResult& result = run.result;
  const ProcessFailure& cause = result.failures.front();
  ReportContext context;
  context.host = run.host;
  context.world_size = std::max(result.world_size, 1);
  context.logs = run.folder;
  std::string text = failure_report(result, context);
  const Logs logs = logs_of(worker_folder(run, cause), !cause.last_stderr.empty());
  text += logs.shown + earlier_rounds(result);
  const bool here =
      cause.is_worker() ? run.had(cause) : cause.host.empty() || cause.host == run.host;
  return text + what_to_do(cause, {.words = words_of(cause, logs.words),
                                   .output = logs.output,
                                   .elsewhere = here ? "" : cause.host,
                                   .world_size = result.world_size});
}

std::string headline(const PastRun& run) {
  const RunResult& result = run.result;
  const auto lived = std::chrono::duration_cast<std::chrono::milliseconds>(result.lived);
  return fmt::format("run {} on {}: {} after {}, exit code {}, attempt {}\n", run.run_id, run.host,
                     name_of(result.outcome), seconds_text(lived), run.exit_code, result.attempt);
}

std::string recorded_run(const PastRun& run) {
  if (!run.error.empty()) {
    return fmt::format("ddp-run itself failed with exit code {}: {}\n", run.exit_code, run.error);
  }
  std::string text = headline(run);
  switch (run.result.outcome) {
    case Outcome::Succeeded:
      return text + earlier_rounds(run.result) + "All workers succeeded.\n";
    case Outcome::Preempted:
      return text + "The workers saved their state: run the same command again to continue.\n";
    case Outcome::Interrupted:
      return text +
             "A signal asked ddp-run to end the job: Ctrl-C, a scheduler, a closed terminal "
             "(nohup keeps a job alive).\n";
    case Outcome::LauncherGone:
      return text +
             "ddp-run was killed by SIGKILL and took its workers with it; was it the OOM "
             "killer (dmesg)?\n";
    case Outcome::Failed:
      break;
  }
  return text + (run.result.failures.empty()
                     ? "What to do:\n  its record names no failure: see the lines before its end\n"
                     : failed_run(run));
}

struct Told {
  WorkerFiles files;
  ErrorMessage error;
};

// The workers that wrote an error file, the earliest first.
std::vector<Told> errors_of(const std::vector<WorkerFiles>& workers) {
  std::vector<Told> told;
  for (const auto& worker : workers) {
    if (auto error = read_error_file(worker.folder + "/error.json"))
      told.push_back({worker, *error});
  }
  std::stable_sort(told.begin(), told.end(),
                   [](const Told& a, const Told& b) { return a.error.time < b.error.time; });
  return told;
}

std::string first_error(const Told& told) {
  const ErrorMessage& error = told.error;
  const std::string when = error.time > 0 ? ", at " + clock_text(error.time) : "";
  const std::string& words = error.callstack.empty() ? error.text : error.callstack;
  return fmt::format("First to write an error file: local rank {}{}\n{}", told.files.local_rank,
                     when, text_of(last_lines_of(words, kLinesOfLog), "    "));
}

// Without a result nobody knows how the workers ended: only their own words are left.
std::string unrecorded_run(const PastRun& run) {
  std::string text = fmt::format(
      "{}: no result.json. The run is still going on, or its launcher was killed (SIGKILL, a "
      "machine that went down), or it was torchrun's. What attempt {} has left:\n",
      run.folder, run.result.attempt);
  const auto workers = newest_attempt(run.folder);
  const auto told = errors_of(workers);
  std::string words;
  if (!told.empty()) {
    text += first_error(told.front());
    words = told.front().error.text + "\n" + told.front().error.callstack;
  }
  std::string output = told.empty() ? run.folder : "";
  for (const auto& worker : workers) {
    const Logs logs = logs_of(worker.folder, false);
    text += logs.shown;
    const bool failed_first = !told.empty() && worker.local_rank == told.front().files.local_rank;
    if (told.empty() || failed_first) words += logs.words;
    if (failed_first) output = logs.output;
  }
  return text + what_to_do({}, {.words = words, .output = output});
}

}  // namespace

std::string explain_run(const std::string& path) {
  const PastRun run = read_past_run(path);
  return run.recorded ? recorded_run(run) : unrecorded_run(run);
}

}  // namespace ddp::launch
