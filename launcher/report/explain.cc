#include "launcher/report/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <vector>

#include "launcher/base/run_layout.h"
#include "launcher/base/signal_names.h"
#include "launcher/base/text.h"
#include "launcher/report/advice.h"
#include "launcher/report/error_file.h"
#include "launcher/report/failure_report.h"
#include "launcher/report/past_run.h"
#include "launcher/report/python_error.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kLinesOfLog = 8;

std::string indented(const std::vector<std::string>& lines, std::string_view indent) {
  std::string text;
  for (const auto& line : lines) text += fmt::format("{}{}\n", indent, line);
  return text;
}

// Advice with the line that led to the failure, else how to find the cause.
std::string what_to_do(const ProcessFailure& failure, const Traces& traces,
                       WorkerProgram program = WorkerProgram::kOther) {
  std::vector<std::string> lines = advice_for(failure, traces.words, traces.error, program);
  if (lines.empty()) {
    lines = next_steps(failure, traces);
  } else if (traces.error) {
    lines.push_back(look_at(*traces.error));
  }
  return "What to do:\n" + indented(lines, "  ");
}

// What the result does not hold about a rank.
struct Logs {
  std::string folder;                // empty: it has no log files
  std::string shown;                 // their ends, with their paths
  std::string words;                 // the same lines alone
  std::string output;                // the first file that is not empty: stderr if it was kept
  std::optional<PythonError> error;  // in stderr, else in stdout
  std::filesystem::file_time_type written{};  // the file with the error
};

Logs logs_of(const std::string& folder, bool knows_stderr) {
  Logs logs;
  if (folder.empty()) return logs;
  std::error_code ignored;
  for (const std::string name : {"/stderr.log", "/stdout.log"}) {
    const auto end = end_of_log(folder + name);
    if (end) logs.folder = folder;
    if (!end || end->empty()) continue;
    if (logs.output.empty()) logs.output = folder + name;
    if (!logs.error && (logs.error = last_python_error(*end)))
      logs.written = std::filesystem::last_write_time(folder + name, ignored);
    if (knows_stderr && name == "/stderr.log") continue;
    const auto lines = last_lines(*end, kLinesOfLog);
    logs.shown += fmt::format("  end of {}{}:\n{}", folder, name, indented(lines, "    "));
    logs.words += indented(lines, "");
  }
  return logs;
}

// The last error of a worker of this node, and where its log is.
std::string end_of_round(const PastRun& run, const EarlierRound& round) {
  const int local_rank = round.cause.local_rank;
  if (run.folder.empty() || local_rank == ProcessFailure::kNoRank) return "";
  const std::string folder = worker_folder(run.folder, round.attempt, local_rank);
  for (const std::string name : {"/stderr.log", "/stdout.log"}) {
    const std::string line = last_error_line(end_of_log(folder + name).value_or(""));
    if (!line.empty()) return fmt::format("    {}\n    in {}{}\n", line, folder, name);
  }
  const std::string file = folder + "/" + kErrorFileName;
  const auto told = read_error_file(file);
  return told ? fmt::format("    {}\n    in {}\n", last_error_line(told->text), file) : "";
}

std::string earlier_rounds(const PastRun& run) {
  std::string text;
  for (const auto& round : run.result.earlier) {
    const ProcessFailure& cause = round.cause;
    const std::string who =
        cause.rank >= 0 ? fmt::format("rank {} on {}, ", cause.rank, cause.host) : "";
    text +=
        fmt::format("  attempt {}, {}: {}{}\n{}", round.attempt, local_time(cause.time, "%H:%M:%S"),
                    who, cause.cause, end_of_round(run, round));
  }
  return text.empty() ? "" : "Before that:\n" + text;
}

std::string words_of(const ProcessFailure& failure, const std::string& logs) {
  const auto message = read_error_file(failure.error_file);
  return failure.last_stderr + "\n" + failure.message + "\n" +
         (message ? message->text + "\n" + message->callstack : "") + "\n" + logs;
}

// nullopt if the process survived the exceptions that it printed: it was ended from outside.
std::optional<PythonError> exception_of(const ProcessFailure& failure, const Logs& logs) {
  const ExitStatus& exit = failure.exit;
  const int signal = exit.signal != 0 ? exit.signal : exit.code - kExitSignalBase;
  if (!failure.hang.empty() || signal == SIGKILL || signal == SIGTERM) return std::nullopt;
  const auto message = read_error_file(failure.error_file);
  for (const auto& words : {message ? message->callstack : "", failure.last_stderr}) {
    if (auto error = last_python_error(words)) return error;
  }
  return logs.error;
}

Traces traces_of(const PastRun& run, const Logs& logs) {
  const ProcessFailure& cause = run.result.failures.front();
  const bool ours = !run.cause_folder.empty() || run.had(cause);
  const bool here = cause.is_worker() ? ours : cause.host.empty() || cause.host == run.host;
  return {.words = words_of(cause, logs.words),
          .error = exception_of(cause, logs),
          .output = logs.output,
          .logs = logs.folder,
          .elsewhere = here ? "" : cause.host,
          .world_size = run.result.world_size,
          .several_nodes = run.result.world_size > static_cast<int>(run.pids.size())};
}

std::string failed_run(const PastRun& run) {
  const RunResult& result = run.result;
  const ProcessFailure& cause = result.failures.front();
  ReportContext context;
  context.host = run.host;
  context.world_size = std::max(result.world_size, 1);
  context.logs = run.folder;
  const Logs logs = logs_of(run.cause_folder, !cause.last_stderr.empty());
  return failure_report(result, context) + logs.shown + earlier_rounds(run) +
         what_to_do(cause, traces_of(run, logs), result.program);
}

std::string interruption(int exit_code) {
  const int signal = exit_code - kExitSignalBase;
  const std::string sender = signal == SIGINT   ? "Ctrl-C"
                             : signal == SIGHUP ? "a closed terminal (nohup keeps a job alive)"
                                                : "a scheduler, a user or another program";
  return fmt::format("{} ended the job: {}.\n", signal > 0 ? signal_name(signal) : "A signal",
                     sender);
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
    case Outcome::kSucceeded:
      return text + earlier_rounds(run) + "All workers succeeded.\n";
    case Outcome::kPreempted:
      return text + "The workers saved their state: rerun the same command to continue.\n";
    case Outcome::kInterrupted:
      return text + interruption(run.exit_code) + (has_failed(run.result) ? failed_run(run) : "");
    case Outcome::kGuardianGone:
      return text +
             "ddp-run was killed by SIGKILL, and its workers with it; check dmesg for the OOM "
             "killer.\n";
    case Outcome::kFailed:
      break;
  }
  return text + (run.result.failures.empty()
                     ? "What to do:\n  its result has no failure: see its last lines\n"
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
    if (auto error = read_error_file(worker.folder + "/" + kErrorFileName))
      told.push_back({worker, *error});
  }
  std::stable_sort(told.begin(), told.end(),
                   [](const Told& a, const Told& b) { return a.error.time < b.error.time; });
  return told;
}

std::string first_error(const Told& told) {
  const ErrorMessage& error = told.error;
  const std::string when = error.time > 0 ? ", at " + local_time(error.time, "%H:%M:%S") : "";
  const std::string& words = error.callstack.empty() ? error.text : error.callstack;
  return fmt::format("First to write an error file: local rank {}{}\n{}", told.files.local_rank,
                     when, indented(last_lines(words, kLinesOfLog), "    "));
}

std::string why_unrecorded(const PastRun& run) {
  return run.damaged
             ? "its result.json is damaged or truncated"
             : "no result.json. The run is still in progress, its launcher was killed (SIGKILL, a "
               "machine that went down), or it was started by torchrun";
}

Traces traces_of(const Told& told) {
  const Logs logs = logs_of(told.files.folder, false);
  auto error = last_python_error(told.error.callstack);
  return {.words = told.error.text + "\n" + told.error.callstack + "\n" + logs.words,
          .error = error ? error : logs.error,
          .output = logs.output,
          .logs = logs.folder};
}

// It is unknown who failed first; the exceptions of its peers are later ones.
Traces traces_of(const std::string& run, const std::vector<Logs>& workers) {
  Traces traces;
  const Logs* first = nullptr;
  for (const Logs& logs : workers) {
    traces.words += logs.words;
    if (!logs.output.empty()) traces.output = run;
    if (!logs.folder.empty()) traces.logs = run;
    if (logs.error && (!first || logs.written < first->written)) first = &logs;
  }
  if (first) traces.error = first->error;
  return traces;
}

// Without a result it is unknown how the workers exited: only their output is left.
std::string unrecorded_run(const PastRun& run) {
  const auto workers = newest_attempt(run.folder);
  const auto told = errors_of(workers);
  std::string left = told.empty() ? "" : first_error(told.front());
  std::vector<Logs> all;
  for (const auto& worker : workers) {
    all.push_back(logs_of(worker.folder, false));
    left += all.back().shown;
  }
  if (!left.empty()) left = fmt::format("What attempt {} left:\n", run.result.attempt) + left;
  return fmt::format("{}: {}.\n", run.folder, why_unrecorded(run)) + left +
         what_to_do({}, told.empty() ? traces_of(run.folder, all) : traces_of(told.front()));
}

}  // namespace

std::string explain_run(const std::string& path) {
  const PastRun run = read_past_run(path);
  return run.recorded ? recorded_run(run) : unrecorded_run(run);
}

}  // namespace ddp::launch
