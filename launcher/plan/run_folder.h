// The folder of one run: <base>/<run id>_<random>/attempt_<n>/<local rank>/error.json, as torchrun
// lays it out.
#pragma once

#include <string>

namespace ddp::launch {

/// What the files of a run are for once it has ended.
enum class RunFiles {
  ErrorFiles,  // for the report only
  LogCopies,   // copies of console output: for investigating a failure
  Logs,
};

class RunFolder {
 public:
  /// No files at all.
  RunFolder() = default;
  /// log_dir empty: a folder under TMPDIR that only its owner can enter, which remove_if_private()
  /// removes unless it holds Logs;
  /// "/dev/null": no files; in a named one, the link `latest` points to the newest run. Throws
  /// LaunchError (2) if the folder cannot be created.
  static RunFolder create(const std::string& log_dir, const std::string& run_id, RunFiles files);
  /// The same without creating anything: XXXXXX stands for what create() chooses.
  static RunFolder planned(const std::string& log_dir, const std::string& run_id, RunFiles files);

  /// Creates the folders of this attempt; a private folder without logs keeps only the newest one
  /// and those with stacks, which the user was told about.
  void prepare_attempt(int attempt, int local_world_size) const;
  /// Empty without files, like the two folders.
  std::string error_file(int attempt, int local_rank) const;
  std::string heartbeat_file(int attempt, int local_rank) const;
  std::string stacks_file(int attempt, int local_rank) const;
  std::string attempt_folder(int attempt) const;
  std::string worker_folder(int attempt, int local_rank) const;
  const std::string& path() const { return path_; }
  bool is_private() const { return private_; }
  bool has_logs() const { return has_logs_; }
  /// Keeps a folder with logs from now on, for every process of this run.
  void keep_logs() const;
  bool keeps_logs() const;
  /// For the record of the run, beside the attempts; empty: the folder will not outlive the run.
  std::string result_file() const;
  /// Removes it, except attempts that hold stacks.
  void remove_if_private() const;

 private:
  std::string path_;
  bool private_ = false;
  bool has_logs_ = false;
};

}  // namespace ddp::launch
