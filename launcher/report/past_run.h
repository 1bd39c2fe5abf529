// Reads what a run left behind: its result and the folders of its attempts, as ddp-run and torchrun
// lay them out. Only throws LaunchError, whatever the files contain.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/run_result.h"

namespace ddp::launch {

struct PastRun {
  std::string folder;     // empty: there is only the result file
  bool recorded = false;  // there is a result, not only the attempts' files
  bool damaged = false;   // there is a result that cannot be read
  RunResult result;       // with the error files that are on this host
  int exit_code = 0;
  std::string run_id;
  std::string host;
  std::string error;        // why ddp-run itself failed; may be empty
  std::map<int, int> pids;  // of this node's workers, by rank
  // Files of the worker that failed first, possibly of another node; empty: not on this host.
  std::string cause_folder{};

  /// Returns whether the worker ran on this node, so that its files are in `folder`.
  bool had(const ProcessFailure& failure) const;
};

/// `path` is the folder of a run, a --log-dir (its newest run is read), a file written by
/// --result-json, or something in the folder of a run: its result, an attempt, a worker's files.
/// Throws LaunchError (2) if it is none of these.
PastRun read_past_run(const std::string& path);

/// The files of one worker.
struct WorkerFiles {
  int attempt = 0;
  int local_rank = 0;
  std::string folder;
};
/// Returns the workers of the newest attempt in a run's folder, by local rank.
std::vector<WorkerFiles> newest_attempt(const std::string& folder);

/// Returns the end of a log: whole lines, at most 16 KiB; nullopt if it cannot be read.
std::optional<std::string> end_of_log(const std::string& file);

}  // namespace ddp::launch
