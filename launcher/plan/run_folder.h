// The folder of one run: <base>/<run id>_<random>/attempt_<n>/<local rank>/error.json, as torchrun
// lays it out.
#pragma once

#include <string>

namespace ddp::launch {

/// What the files of a run are good for once it has ended.
enum class RunFiles {
  ErrorFiles,  // for the report only
  LogCopies,   // of what the console has shown: for whoever looks into a failure
  Logs,
};

class RunFolder {
 public:
  /// No files at all.
  RunFolder() = default;
  /// log_dir empty: a folder under TMPDIR, which remove_if_private() takes away unless it holds
  /// Logs; "/dev/null": no files; in a named one the link `latest` leads to the newest run. Throws
  /// LaunchError (2) when the folder cannot be made.
  static RunFolder create(const std::string& log_dir, const std::string& run_id, RunFiles files);
  /// The same without making anything: XXXXXX stands for what create() chooses.
  static RunFolder planned(const std::string& log_dir, const std::string& run_id, RunFiles files);

  /// Makes the folders of this attempt; a private folder without logs keeps the newest one only,
  /// and those that hold stacks: the user was told of them.
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
  /// From now on a folder with logs stays, for every process of this run.
  void keep_logs() const;
  bool keeps_logs() const;
  /// All but the attempts that hold stacks.
  void remove_if_private() const;

 private:
  std::string path_;
  bool private_ = false;
  bool has_logs_ = false;
};

}  // namespace ddp::launch
