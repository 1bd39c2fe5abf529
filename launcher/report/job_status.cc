#include "launcher/report/job_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/base/system/regular_file.h"
#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

using nlohmann::json;

constexpr WorkerState kStates[] = {WorkerState::kRunning, WorkerState::kSucceeded,
                                   WorkerState::kFailed, WorkerState::kStopped};

json straggler_json(const std::optional<Straggler>& straggler) {
  if (!straggler) return {};
  return {{"rank", straggler->rank},       {"node", straggler->node},
          {"host", straggler->host},       {"phase", straggler->phase},
          {"seconds", straggler->seconds}, {"others_seconds", straggler->others}};
}

std::string health(const JobStatus& job) {
  json object{{"status", name_of(job.phase)},
              {"run_id", job.run_id},
              {"host", job.host},
              {"node", job.node},
              {"nodes", job.nodes},
              {"restarts", job.restarts},
              {"max_restarts", job.max_restarts},
              {"seconds", job.seconds},
              {"straggler", straggler_json(job.straggler)}};
  object["workers"] = json::array();
  for (const WorkerStatus& worker : job.workers) {
    object["workers"].push_back({{"rank", worker.rank},
                                 {"local_rank", worker.local_rank},
                                 {"pid", worker.pid},
                                 {"state", name_of(worker.state)},
                                 {"silence", worker.silence ? json(*worker.silence) : json()},
                                 {"heartbeat", worker.heartbeat},
                                 {"step", worker.step ? json(*worker.step) : json()}});
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

bool is_group_well(const JobStatus& job) {
  return job.phase == Phase::kRunning || job.phase == Phase::kJoining ||
         job.phase == Phase::kChecking;
}

std::string label(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

class Metrics {
 public:
  void family(const char* name, const char* type, const char* help) {
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void sample(const std::string& series, double value) {
    text_ += fmt::format("{} {}\n", series, value);
  }
  void single(const char* name, const char* type, const char* help, double value) {
    family(name, type, help);
    sample(name, value);
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

// No sample means no straggler.
void add_straggler(Metrics& out, const std::optional<Straggler>& straggler) {
  const auto add = [&](const char* name, const char* help, double seconds) {
    out.family(name, "gauge", help);
    if (!straggler) return;
    out.sample(
        fmt::format("{}{{rank=\"{}\",node=\"{}\",host=\"{}\",phase=\"{}\"}}", name, straggler->rank,
                    straggler->node, label(straggler->host), label(straggler->phase)),
        seconds);
  };
  add("ddp_run_straggler_seconds",
      "Time that the rank for which the others wait takes for the phase (95th percentile, 30 s).",
      straggler ? straggler->seconds : 0);
  add("ddp_run_straggler_others_seconds", "The same time of the other ranks (median).",
      straggler ? straggler->others : 0);
}

std::string metrics(const JobStatus& job) {
  Metrics out;
  out.family("ddp_run_info", "gauge", "Job information, in the labels.");
  out.sample(
      fmt::format("ddp_run_info{{run_id=\"{}\",host=\"{}\"}}", label(job.run_id), label(job.host)),
      1);
  out.single(
      "ddp_run_healthy", "gauge",
      "1 while the workers run or nodes are waited for, 0 while workers are stopped or restarted.",
      is_group_well(job) ? 1 : 0);
  out.single("ddp_run_nodes", "gauge", "Nodes in the present round.", job.nodes);
  out.single("ddp_run_restarts_total", "counter", "Restarts of the group so far.", job.restarts);
  out.single("ddp_run_max_restarts", "gauge", "Maximum number of restarts.", job.max_restarts);
  out.single("ddp_run_seconds", "gauge", "Seconds since the job started.", job.seconds);
  out.single("ddp_run_round_seconds", "gauge", "Seconds since the group was last started.",
             job.round_seconds);
  out.family("ddp_run_workers", "gauge", "Workers on this node by state.");
  for (const WorkerState state : kStates) {
    const auto count =
        std::count_if(job.workers.begin(), job.workers.end(),
                      [&](const WorkerStatus& worker) { return worker.state == state; });
    out.sample(fmt::format("ddp_run_workers{{state=\"{}\"}}", name_of(state)),
               static_cast<double>(count));
  }
  out.family("ddp_run_worker_silence_seconds", "gauge",
             "Seconds since a running worker's last heartbeat or output.");
  for (const WorkerStatus& worker : job.workers) {
    if (!worker.silence) continue;
    out.sample(fmt::format("ddp_run_worker_silence_seconds{{rank=\"{}\"}}", worker.rank),
               *worker.silence);
  }
  out.family("ddp_run_worker_step", "gauge", "Step reported by the last heartbeat.");
  for (const WorkerStatus& worker : job.workers) {
    if (!worker.step) continue;
    out.sample(fmt::format("ddp_run_worker_step{{rank=\"{}\"}}", worker.rank),
               static_cast<double>(*worker.step));
  }
  add_straggler(out, job.straggler);
  return std::move(out).text() + job.worker_metrics;
}

}  // namespace

std::string read_worker_metrics(const std::string& shm_dir) {
  constexpr std::size_t kMost = std::size_t{256} * 1024;
  if (shm_dir.empty()) return "";
  // The folder is the workers' as well: a link or a pipe in this place must not lead astray.
  std::string text = read_regular_file(shm_dir + "/" + kMetricsFile, kMost, Links::kRefuse).text;
  if (!text.empty() && text.back() != '\n') text += '\n';
  return text;
}

std::string status_table(const JobStatus& job, std::size_t longest) {
  std::string table = fmt::format(
      "job {}: {} for {:.0f} s, node {} of {} ({}, pid {}), round {} for {:.0f} s, "
      "{} of {} restarts left\n"
      "  {:>5} {:>9} {:<10} {:>12}  {}\n",
      job.run_id, name_of(job.phase), job.seconds, job.node, job.nodes, job.host, job.pid,
      job.round, job.round_seconds, std::max(job.max_restarts - job.restarts, 0), job.max_restarts,
      "rank", "pid", "state", "last sign s", "heartbeat");
  constexpr std::size_t kLastLine = 32;
  auto left = std::ssize(job.workers);
  for (const WorkerStatus& worker : job.workers) {
    const std::string row = fmt::format(
        "  {:>5} {:>9} {:<10} {:>12}  {}\n", worker.rank, worker.pid, name_of(worker.state),
        worker.silence ? fmt::format("{:.1f}", *worker.silence) : "-", printable(worker.heartbeat));
    if (table.size() + row.size() + kLastLine > longest)
      return table + fmt::format("  ... {}\n", plural(left, "more rank"));
    table += row;
    --left;
  }
  return table;
}

HttpAnswer answer_about(const JobStatus& job, const std::string& path) {
  // Liveness: a probe that failed during a restart would have the agent killed that restarts.
  if (path == "/health" || path == "/healthz") return {"200 OK", "application/json", health(job)};
  if (path == "/metrics")
    return {"200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics(job)};
  return {"404 Not Found", "text/plain", "try /health or /metrics\n"};
}

}  // namespace ddp::launch
