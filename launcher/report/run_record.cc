#include "launcher/report/run_record.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launcher/base/clock.h"
#include "launcher/base/states.h"
#include "launcher/report/error_file.h"
#include "launcher/report/failure_report.h"

namespace ddp::launch {
namespace {

using nlohmann::json;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

void put_exit(json& object, const ExitStatus& exit) {
  object["exit_code"] = exit.signal != 0 ? json(nullptr) : json(exit.code);
  object["signal"] = exit.signal != 0 ? json(exit.signal) : json(nullptr);
}

json to_json(const Worker& worker) {
  json object{{"rank", worker.rank},
              {"local_rank", worker.local_rank},
              {"pid", worker.pid},
              {"state", name_of(worker.state)},
              {"spawned", seconds(worker.spawned)},
              {"first_line", worker.first_line ? json(seconds(*worker.first_line)) : json(nullptr)},
              {"seconds", seconds(worker.lived)},
              {"cpu_seconds", worker.usage.cpu_seconds},
              {"max_rss_kib", worker.usage.max_rss_kib}};
  put_exit(object, worker.exit);
  return object;
}

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

json to_json(const ProcessFailure& failure, const std::string& host) {
  const auto number = [&](int value) { return failure.is_worker() ? json(value) : json(nullptr); };
  json object{{"rank", number(failure.rank)},
              {"local_rank", number(failure.local_rank)},
              {"pid", number(failure.pid)},
              {"stderr", failure.last_stderr}};
  put_exit(object, failure.exit);
  const auto message = read_error_file(failure.error_file);
  object["message"] = message ? json(message->text) : text_or_null(failure.message);
  object["host"] = failure.host.empty() ? host : failure.host;
  object["hang"] = text_or_null(failure.hang);
  object["time"] = failure.time;
  object["stacks"] = text_or_null(failure.stacks);
  object["heartbeat"] = text_or_null(failure.heartbeat);
  object["step"] = failure.progress.step ? json(*failure.progress.step) : json(nullptr);
  object["phase"] = text_or_null(failure.progress.phase);
  object["waiting"] = text_or_null(failure.progress.waiting);
  object["collective"] = text_or_null(failure.progress.collective);
  object["cause"] = failure.cause.empty() ? likely_cause(failure.exit) : failure.cause;
  return object;
}

json to_json(const EarlierRound& round, const std::string& host) {
  const ProcessFailure& cause = round.cause;
  const bool own = cause.is_worker() && cause.host.empty();  // its files are in our folder
  return {{"attempt", round.attempt},
          {"rank", cause.is_worker() ? json(cause.rank) : json(nullptr)},
          {"local_rank", own ? json(cause.local_rank) : json(nullptr)},
          {"host", cause.host.empty() ? host : cause.host},
          {"time", cause.time},
          {"failure", cause.is_worker() ? describe(cause) : cause.cause}};
}

}  // namespace

std::string summary_table(const RunResult& result) {
  std::string table =
      fmt::format("  {:>5} {:>9} {:<10} {:>9} {:>12} {:>10} {:>10} {:>12}\n", "rank", "pid", "exit",
                  "spawned s", "first line s", "seconds", "CPU s", "max RSS MiB");
  for (const Worker& worker : result.workers) {
    const std::string exit = worker.state == WorkerState::kRunning ? "running"
                             : worker.exit.signal != 0
                                 ? fmt::format("signal {}", worker.exit.signal)
                                 : std::to_string(worker.exit.code);
    const std::string first =
        worker.first_line ? fmt::format("{:.3f}", seconds(*worker.first_line)) : "-";
    table += fmt::format("  {:>5} {:>9} {:<10} {:>9.3f} {:>12} {:>10.2f} {:>10.2f} {:>12.1f}\n",
                         worker.rank, worker.pid, exit, seconds(worker.spawned), first,
                         seconds(worker.lived), worker.usage.cpu_seconds,
                         static_cast<double>(worker.usage.max_rss_kib) / 1024);
  }
  return table;
}

std::string result_json(const RunResult& result, const std::string& run_id, const std::string& host,
                        int code) {
  json object{{"outcome", name_of(result.outcome)},
              {"exit_code", code},
              {"run_id", run_id},
              {"host", host},
              {"world_size", result.world_size},
              {"trainer", result.program == WorkerProgram::kTrainer},
              {"attempt", result.attempt},
              {"stopped", result.stopped},
              {"restarts", result.restarts},
              {"max_restarts", result.max_restarts},
              {"gave_up", result.gave_up},
              {"error", nullptr},
              {"seconds", seconds(result.lived)}};
  object["failures"] = json::array();
  for (const auto& failure : result.failures) object["failures"].push_back(to_json(failure, host));
  object["earlier"] = json::array();
  for (const auto& round : result.earlier) object["earlier"].push_back(to_json(round, host));
  object["workers"] = json::array();
  for (const auto& worker : result.workers) object["workers"].push_back(to_json(worker));
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string error_json(int exit_code, const std::string& error) {
  const json object{{"outcome", name_of(Outcome::kFailed)},
                    {"exit_code", exit_code},
                    {"error", error},
                    {"failures", json::array()},
                    {"workers", json::array()}};
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace ddp::launch
