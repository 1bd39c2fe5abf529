// Reads what a run has left behind: its result, and the folders of its attempts, as ddp-run and
// torchrun lay them out. Whatever lies there, it never throws anything but LaunchError.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/run_result.h"

namespace ddp::launch {

struct PastRun {
  std::string folder;     // empty: only the result file is known
  bool recorded = false;  // there is a result; else only the attempts' files are known
  bool damaged = false;   // there is one, but it cannot be read
  RunResult result;       // failures with their error files, as far as these are here
  int exit_code = 0;
  std::string run_id;
  std::string host;
  std::string error;        // why ddp-run itself failed; may be empty
  std::map<int, int> pids;  // of this node's workers, by rank
  // Of the worker that failed first, maybe another node's beside this one; empty: not here.
  std::string cause_folder{};

  /// Whether the worker was one of this node's; its files are in `folder` then.
  bool had(const ProcessFailure& failure) const;
};

/// `path`: the folder of a run, a --log-dir (its newest run), a file written by --result-json, or
/// what lies in the folder of a run: its result, an attempt, a worker's files. Throws LaunchError
/// (2) if it is none of these.
PastRun read_past_run(const std::string& path);

/// The files of one worker that ended the run.
struct WorkerFiles {
  int attempt = 0;
  int local_rank = 0;
  std::string folder;
};
/// Those of the newest attempt in the folder of a run, by local rank.
std::vector<WorkerFiles> newest_attempt(const std::string& folder);

/// The end of a log: whole lines, at most 16 KiB; nullopt if it cannot be read.
std::optional<std::string> end_of_log(const std::string& file);

}  // namespace ddp::launch
