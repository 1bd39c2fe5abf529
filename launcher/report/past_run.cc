#include "launcher/report/past_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "launcher/base/errors.h"
#include "launcher/base/run_layout.h"
#include "launcher/base/system/path_search.h"
#include "launcher/base/system/regular_file.h"
#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kLargestResult = 64 << 20;  // bytes: a job of thousands of workers

// A number in a file that anybody may have written.
template <typename Number>
Number number(const json& object, const char* name, Number otherwise) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<Number>() : otherwise;
}

bool flag(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

std::string text(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// What is shown as it is: no control character reaches the terminal.
std::string line(const json& object, const char* name) { return printable(text(object, name)); }

const json& list(const json& object, const char* name) {
  static const json kNone = json::array();
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : kNone;
}

Outcome outcome_named(const std::string& name) {
  for (const Outcome outcome :
       {Outcome::kSucceeded, Outcome::kPreempted, Outcome::kInterrupted, Outcome::kGuardianGone}) {
    if (name == name_of(outcome)) return outcome;
  }
  return Outcome::kFailed;
}

ProcessFailure failure_from(const json& object) {
  ProcessFailure failure;
  failure.rank = number(object, "rank", ProcessFailure::kNoRank);
  failure.local_rank = number(object, "local_rank", ProcessFailure::kNoRank);
  failure.pid = number(object, "pid", 0);
  failure.exit = {number(object, "exit_code", 0), number(object, "signal", 0)};
  failure.last_stderr = text(object, "stderr");
  failure.cause = line(object, "cause");
  failure.hang = line(object, "hang");
  failure.heartbeat = line(object, "heartbeat");
  failure.progress.waiting = line(object, "waiting");
  failure.host = line(object, "host");
  failure.message = text(object, "message");
  failure.stacks = line(object, "stacks");
  failure.time = number(object, "time", 0.0);
  return failure;
}

EarlierRound earlier_from(const json& object) {
  EarlierRound round;
  round.attempt = number(object, "attempt", 0);
  round.cause.rank = number(object, "rank", ProcessFailure::kNoRank);
  round.cause.local_rank = number(object, "local_rank", ProcessFailure::kNoRank);
  round.cause.host = line(object, "host");
  round.cause.time = number(object, "time", 0.0);
  round.cause.cause = line(object, "failure");
  return round;
}

bool is_result(const json& root) { return root.is_object() && !text(root, "outcome").empty(); }

PastRun run_from(const json& root) {
  PastRun run;
  run.recorded = true;
  run.run_id = line(root, "run_id");
  run.host = line(root, "host");
  run.error = line(root, "error");
  run.exit_code = number(root, "exit_code", 0);
  RunResult& result = run.result;
  result.outcome = outcome_named(text(root, "outcome"));
  if (result.outcome == Outcome::kInterrupted) result.signal = run.exit_code - kExitSignalBase;
  result.world_size = number(root, "world_size", 0);
  result.program = flag(root, "trainer") ? WorkerProgram::kTrainer : WorkerProgram::kOther;
  result.attempt = number(root, "attempt", 0);
  result.stopped = number(root, "stopped", 0);
  result.restarts = number(root, "restarts", 0);
  result.max_restarts = number(root, "max_restarts", 0);
  result.gave_up = line(root, "gave_up");
  result.lived = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(number(root, "seconds", 0.0)));
  for (const json& failure : list(root, "failures")) {
    if (failure.is_object()) result.failures.push_back(failure_from(failure));
  }
  for (const json& worker : list(root, "workers")) {
    if (worker.is_object()) run.pids[number(worker, "rank", -1)] = number(worker, "pid", 0);
  }
  for (const json& round : list(root, "earlier")) {
    if (round.is_object()) result.earlier.push_back(earlier_from(round));
  }
  return run;
}

json read_json(const std::string& file) {
  const FileText content = read_regular_file(file, kLargestResult, Links::kFollow);
  return json::parse(content.text, nullptr, /*allow_exceptions=*/false);
}

// Newest first: attempt_10 before attempt_9.
std::vector<int> attempts_in(const fs::path& folder) {
  std::vector<int> attempts;
  for (const fs::path& path : paths_in(folder)) {
    const std::string name = path.filename().string();
    std::error_code ignored;
    if (!name.starts_with(kAttemptPrefix) || !fs::is_directory(path, ignored)) continue;
    if (const auto n = whole_number(name.substr(kAttemptPrefix.size()))) attempts.push_back(*n);
  }
  std::sort(attempts.rbegin(), attempts.rend());
  return attempts;
}

bool is_run(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kResultFileName, error) || !attempts_in(folder).empty();
}

// torchrun makes no link to the newest one.
fs::path newest_run_in(const fs::path& log_dir) {
  if (is_run(log_dir / "latest")) return fs::canonical(log_dir / "latest");
  fs::path newest;
  fs::file_time_type when;
  for (const fs::path& path : paths_in(log_dir)) {
    std::error_code ignored;
    const auto changed = fs::last_write_time(path, ignored);
    if (!is_run(path) || (!newest.empty() && changed <= when)) continue;
    newest = path;
    when = changed;
  }
  return newest;
}

PastRun read_folder(const fs::path& folder) {
  const json root = read_json(folder / kResultFileName);
  PastRun run = is_result(root) ? run_from(root) : PastRun{};
  run.folder = folder.string();
  std::error_code error;
  run.damaged = !run.recorded && fs::exists(folder / kResultFileName, error);
  const auto attempts = attempts_in(folder);
  if (!run.recorded && !attempts.empty()) run.result.attempt = attempts.front();
  return run;
}

// Nodes agree on the failure that ended the job: rank and pid alone recur in another run.
bool same_failure(const ProcessFailure& a, const ProcessFailure& b) {
  return a.rank == b.rank && a.pid == b.pid && a.time == b.time;
}

// Each node has its own folder next to the others', and a result with the same failure.
std::string folder_of_cause(const PastRun& run) {
  const ProcessFailure& cause = run.result.failures.front();
  if (run.had(cause)) return worker_folder(run.folder, run.result.attempt, cause.local_rank);
  for (const fs::path& path : paths_in(fs::path(run.folder).parent_path())) {
    std::error_code ignored;
    if (fs::is_symlink(path, ignored)) continue;  // `latest`
    const PastRun other = read_folder(path);
    if (other.run_id != run.run_id || other.result.failures.empty()) continue;
    const ProcessFailure& same = other.result.failures.front();
    if (same_failure(same, cause) && other.had(same))
      return worker_folder(other.folder, other.result.attempt, same.local_rank);
  }
  return "";
}

PastRun with_cause(PastRun run) {
  if (run.result.failures.empty() || !run.result.failures.front().is_worker()) return run;
  run.cause_folder = folder_of_cause(run);
  if (!run.cause_folder.empty())
    run.result.failures.front().error_file = run.cause_folder + "/" + kErrorFileName;
  return run;
}

fs::path run_in(const fs::path& folder) { return is_run(folder) ? folder : newest_run_in(folder); }

// A run keeps its result next to its logs.
fs::path run_beside(const fs::path& file) {
  const bool logs = file.filename() == kResultFileName && !attempts_in(file.parent_path()).empty();
  return logs ? file.parent_path() : fs::path();
}

// RUN/attempt_0, RUN/attempt_0/1, RUN/attempt_0/1/stderr.log -> RUN.
fs::path run_above(fs::path path) {
  for (int up = 0; up < 3; ++up, path = path.parent_path()) {
    if (path.filename().string().rfind(kAttemptPrefix, 0) == 0 && is_run(path.parent_path()))
      return path.parent_path();
  }
  return {};
}

}  // namespace

bool PastRun::had(const ProcessFailure& failure) const {
  const auto pid = pids.find(failure.rank);
  return pid != pids.end() && pid->second == failure.pid;
}

PastRun read_past_run(const std::string& path) {
  std::error_code error;
  const fs::path place = fs::canonical(path, error);
  if (error) usage_error(fmt::format("--explain={}: no such file or folder", path));
  const bool is_folder = fs::is_directory(place, error);
  fs::path folder = is_folder ? run_in(place) : run_beside(place);
  const json root = folder.empty() ? read_json(place) : json();
  if (is_result(root)) return run_from(root);
  if (folder.empty()) folder = run_above(place);
  if (!folder.empty()) return with_cause(read_folder(folder));
  if (is_folder) {
    usage_error(
        fmt::format("--explain={}: holds no run; give the folder that the run named as its "
                    "logs (--log-dir), or its --result-json file",
                    path));
  }
  usage_error(
      fmt::format("--explain={}: is not the result of a run; give a file written by "
                  "--result-json, or a --log-dir",
                  path));
}

std::vector<WorkerFiles> newest_attempt(const std::string& folder) {
  std::vector<WorkerFiles> workers;
  const auto attempts = attempts_in(folder);
  if (attempts.empty()) return workers;
  for (const fs::path& path : paths_in(attempt_folder(folder, attempts.front()))) {
    if (const auto rank = whole_number(path.filename().string()))
      workers.push_back({attempts.front(), *rank, path.string()});
  }
  std::sort(workers.begin(), workers.end(),
            [](const auto& a, const auto& b) { return a.local_rank < b.local_rank; });
  return workers;
}

std::optional<std::string> end_of_log(const std::string& file) {
  constexpr std::streamoff kMost = 16 << 10;
  auto text = end_of_file(file, kMost + 1);
  if (text && std::ssize(*text) > kMost) text->erase(0, text->find('\n') + 1);
  return text;
}

}  // namespace ddp::launch
