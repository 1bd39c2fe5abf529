// The folder of one run: <base>/<run id>_<random>/attempt_<n>/<local rank>/error.json, as torchrun
// lays it out.
#pragma once

#include <string>

namespace ddp::launch {

/// The files that a run leaves, by their purpose after its end.
enum class RunFiles {
  kErrorFiles,  // for the report only
  kLogCopies,   // copies of console output: for investigating a failure
  kLogs,
};

class RunFolder {
 public:
  /// No files at all.
  RunFolder() = default;
  /// Creates a folder in `log_dir`, where the link `latest` points to the newest run. If `log_dir`
  /// is empty, it is a private folder where Python's tempfile would have it, which
  /// remove_if_private() removes unless it holds Logs; "/dev/null": no files. Throws LaunchError
  /// (2) if the folder cannot be created.
  static RunFolder create(const std::string& log_dir, const std::string& run_id, RunFiles files);
  /// The same without creating anything; XXXXXX stands for what create() would choose.
  static RunFolder planned(const std::string& log_dir, const std::string& run_id, RunFiles files);

  /// Creates the folders of this attempt. A private folder without logs keeps only the newest
  /// attempt and those with stacks, whose paths have been logged.
  void prepare_attempt(int attempt, int local_world_size) const;
  /// Paths of a worker's files and folders; empty if there are no files.
  std::string error_file(int attempt, int local_rank) const;
  std::string heartbeat_file(int attempt, int local_rank) const;
  std::string stacks_file(int attempt, int local_rank) const;
  std::string attempt_folder(int attempt) const;
  std::string worker_folder(int attempt, int local_rank) const;
  const std::string& path() const { return path_; }
  bool is_private() const { return private_; }
  bool has_logs() const { return has_logs_; }
  /// Marks a folder with logs to be kept, for all processes of this run.
  void keep_logs() const;
  bool keeps_logs() const;
  /// Path of the run's result, next to the attempts; empty: the folder will not outlive the run.
  std::string result_file() const;
  /// Removes a private folder, except attempts that hold stacks.
  void remove_if_private() const;

 private:
  std::string path_;
  bool private_ = false;
  bool has_logs_ = false;
};

}  // namespace ddp::launch
