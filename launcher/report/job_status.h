// The status of a running job that ddp-run serves over HTTP: /health for liveness probes, /metrics
// for Prometheus. Pure.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/pace.h"
#include "launcher/base/states.h"

namespace ddp::launch {

struct WorkerStatus {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  WorkerState state = WorkerState::kRunning;
  std::optional<double> silence{};  // seconds since its last sign of life; running workers only
  std::string heartbeat{};          // text of its last heartbeat
  std::optional<long long> step{};  // from the heartbeat
};

struct JobStatus {
  std::string run_id{};
  std::string host{};
  pid_t pid = 0;  // of this node's ddp-run
  Phase phase = Phase::kRunning;
  int node = 0;   // rank of this node
  int nodes = 1;  // in the current round
  int round = 0;  // TORCHELASTIC_RESTART_COUNT
  int restarts = 0;
  int max_restarts = 0;
  double seconds = 0;        // since the job began
  double round_seconds = 0;  // since the last start of the group
  std::vector<WorkerStatus> workers{};
  std::optional<Straggler> straggler{};  // the rank that the others wait for
  std::string worker_metrics{};          // the workers' own metrics, as Prometheus text
};

struct HttpAnswer {
  std::string status = "200 OK";
  std::string type;
  std::string body;
};

/// Answers /health (always 200: a server that answers is alive; the JSON object has the group's
/// state) and /metrics (Prometheus text format 0.0.4, including the workers' own).
HttpAnswer answer_about(const JobStatus& job, const std::string& path);

/// Returns a line about the job and a table of this node's workers, for people. Beyond `longest`
/// bytes the last line has the number of workers left out.
std::string status_table(const JobStatus& job, std::size_t longest = std::string::npos);

/// Reads kMetricsFile in `shm_dir`; "" if there is no such file, or it is not regular or larger
/// than 256 KiB. Never blocks.
std::string read_worker_metrics(const std::string& shm_dir);

}  // namespace ddp::launch
