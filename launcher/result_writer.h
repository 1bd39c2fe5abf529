// Machine-readable results of a run: the file of --result-json, result.json in the run's folder,
// and the error file of an enclosing job. report/failure_report.h has the human-readable ones.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "launcher/base/command.h"
#include "launcher/base/run_result.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/plan/run_folder.h"

namespace ddp::launch {

/// Writes the result of one run. The guardian creates it before the job starts; the agent writes
/// with its copy from the fork, so only the files themselves show what has been written. After the
/// constructor no failure to write changes the exit code, and only --result-json and the enclosing
/// job's file are worth a message. Single-threaded.
class ResultWriter {
 public:
  /// `result_json`: the file of --result-json; empty: none. Removes an earlier run's. Throws
  /// LaunchError (2) if it could not be written at the end. TORCHELASTIC_ERROR_FILE in
  /// `environment` names the enclosing job's error file.
  ResultWriter(std::string result_json, const Environment& environment);

  /// Results are recorded in this folder as well if it outlives the run.
  void use_folder(const RunFolder& folder) { folder_ = folder; }

  /// Returns what `body` returns. Records an exception as a failure of ddp-run itself and rethrows.
  int run(const std::function<int()>& body);

  /// In the agent, after the job's end: keeps the result, for the guardian as well.
  void record(const RunResult& result, const std::string& run_id, const std::string& host,
              int code);
  /// Call after record(). Returns what writes --result-json and the enclosing job's error file, as
  /// their disks may block; in this object's lifetime, in one thread. Null: there are none.
  std::function<void()> files_write(const RunResult& result);
  /// The first of these files, for messages.
  const std::string& files() const {
    return result_json_.empty() ? enclosing_error_file_ : result_json_;
  }
  /// Returns, once, lines for the user about files that could not be written.
  std::string take_problems();
  /// Call after record(), once it is decided whether the run's folder is kept: writes the result
  /// there.
  void write_to_folder() { folder_write()(); }
  /// Returns what write_to_folder() would do now, for another thread.
  std::function<void()> folder_write() const;
  /// In the guardian, after the agent's end: takes over its result, or records that there is none.
  void take_over(int exit_code);
  /// Writes that result to the files that the agent, killed or stuck, has not written.
  void write_if_missing();

 private:
  void hand_over() const;
  void write_result_json(const std::string& text);
  void pass_on(const ErrorFile& cause, int code);

  std::string result_json_;
  std::string enclosing_error_file_;
  RunFolder folder_;
  std::string text_;     // the result of record()
  Descriptor handover_;  // a file in memory, for the guardian: holds text_ of record() in the agent
  std::atomic<int> error_ = 0;               // errno of write_result_json()
  std::atomic<bool> cause_is_lost_ = false;  // pass_on() has failed
  Descriptor reserve_;                       // a descriptor to close if none is left for the result
};

}  // namespace ddp::launch
