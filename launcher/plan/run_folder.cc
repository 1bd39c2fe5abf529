#include "launcher/plan/run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <vector>

#include "launcher/base/errors.h"
#include "launcher/base/messages.h"
#include "launcher/base/run_layout.h"
#include "launcher/base/system/new_file.h"
#include "launcher/base/system/path_search.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStacks = "stacks.txt";

constexpr const char* kLogsKept = "/logs_kept";

// Where Python's tempfile looks, in its order.
std::vector<std::string> temporary_folders() {
  std::vector<std::string> folders;
  for (const char* variable : {"TMPDIR", "TEMP", "TMP"}) {
    if (const char* given = std::getenv(variable); given && *given) folders.emplace_back(given);
  }
  folders.insert(folders.end(), {"/tmp", "/var/tmp", "/usr/tmp", "."});
  return folders;
}

// Returns the first that can be created. Workers may change directory, so its path is absolute.
std::string create_private_folder() {
  const std::vector<std::string> folders = temporary_folders();
  std::string problem;
  for (const std::string& folder : folders) {
    std::error_code error;
    std::string name = fs::absolute(folder + "/ddp-run_XXXXXX", error).string();
    if (!error && ::mkdtemp(name.data())) {
      if (!problem.empty()) say(fmt::format("{}; using '{}'", problem, folder));
      return name;
    }
    if (problem.empty())
      problem = fmt::format("cannot create a directory in '{}': {}", folder,
                            error ? error.message() : error_text(errno));
  }
  throw LaunchError(kExitUsage, fmt::format("{}, nor in {}; set TMPDIR to a writable one", problem,
                                            fmt::join(folders.begin() + 1, folders.end(), ", ")));
}

// <log-dir>/latest points to the newest run. Replaced by rename, so that it never dangles; a user's
// own file or folder of that name is kept.
void point_latest_at(const std::string& run) {
  const fs::path folder(run);
  const fs::path link = folder.parent_path() / "latest";
  const fs::path fresh = folder / "latest";
  std::error_code error;
  if (fs::exists(fs::symlink_status(link, error)) && !fs::is_symlink(link, error)) return;
  fs::create_symlink(folder.filename(), fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (error) fs::remove(fresh, error);
}

// A hang may happen only once: its stacks may be the only evidence.
bool holds_stacks(const fs::path& attempt) {
  return std::ranges::any_of(paths_in(attempt), [](const fs::path& worker) {
    std::error_code ignored;
    return fs::exists(worker / kStacks, ignored);
  });
}

void remove_unless_it_holds_stacks(const fs::path& attempt) {
  std::error_code ignored;
  if (!holds_stacks(attempt)) fs::remove_all(attempt, ignored);
}

}  // namespace

RunFolder RunFolder::planned(const std::string& log_dir, const std::string& run_id,
                             RunFiles files) {
  RunFolder folder;
  if (log_dir == "/dev/null") return folder;
  folder.private_ = log_dir.empty() && files != RunFiles::kLogs;
  folder.has_logs_ = files != RunFiles::kErrorFiles;
  const std::string path = log_dir.empty()
                               ? temporary_folders().front() + "/ddp-run_XXXXXX"
                               : fmt::format("{}/{}_XXXXXX", log_dir, safe_file_name(run_id));
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);  // workers may change directory
  folder.path_ = error ? path : absolute.string();
  return folder;
}

RunFolder RunFolder::create(const std::string& log_dir, const std::string& run_id, RunFiles files) {
  RunFolder folder = planned(log_dir, run_id, files);
  if (folder.path_.empty()) return folder;
  std::string& name = folder.path_;
  if (log_dir.empty()) {
    name = create_private_folder();
    return folder;
  }
  std::error_code error;
  fs::create_directories(log_dir, error);
  if (error || !::mkdtemp(name.data())) {
    throw LaunchError(kExitUsage,
                      fmt::format("--log-dir={}: {}; choose a writable directory", log_dir,
                                  error ? error.message() : error_text(errno)));
  }
  fs::permissions(name, fs::perms(under_umask(0777)), error);
  point_latest_at(folder.path_);
  return folder;
}

// A marker file, because another process, the guardian, removes the folder.
void RunFolder::keep_logs() const {
  if (private_ && has_logs_) std::ofstream(path_ + kLogsKept);
}

bool RunFolder::keeps_logs() const {
  std::error_code ignored;
  return has_logs_ && fs::exists(path_ + kLogsKept, ignored);
}

void RunFolder::prepare_attempt(int attempt, int local_world_size) const {
  if (path_.empty()) return;
  // It will not be read again, and a job may restart a million times.
  if (private_ && !has_logs_ && attempt > 0)
    remove_unless_it_holds_stacks(attempt_folder(attempt - 1));
  for (int rank = 0; rank < local_world_size; ++rank) {
    std::error_code error;
    const std::string folder = worker_folder(attempt, rank);
    fs::create_directories(folder, error);
    if (error)
      throw LaunchError(kExitFailed, fmt::format("cannot create the directory '{}': {}", folder,
                                                 error.message()));
  }
}

std::string RunFolder::attempt_folder(int attempt) const {
  return path_.empty() ? "" : launch::attempt_folder(path_, attempt);
}

std::string RunFolder::worker_folder(int attempt, int local_rank) const {
  return path_.empty() ? "" : launch::worker_folder(path_, attempt, local_rank);
}

std::string RunFolder::error_file(int attempt, int local_rank) const {
  return path_.empty() ? "" : worker_folder(attempt, local_rank) + "/" + kErrorFileName;
}

std::string RunFolder::heartbeat_file(int attempt, int local_rank) const {
  return path_.empty() ? "" : worker_folder(attempt, local_rank) + "/heartbeat";
}

std::string RunFolder::stacks_file(int attempt, int local_rank) const {
  return path_.empty() ? "" : worker_folder(attempt, local_rank) + "/" + kStacks;
}

std::string RunFolder::result_file() const {
  return path_.empty() || (private_ && !keeps_logs()) ? "" : path_ + "/" + kResultFileName;
}

void RunFolder::remove_if_private() const {
  if (!private_ || path_.empty()) return;
  for (const fs::path& attempt : paths_in(path_)) remove_unless_it_holds_stacks(attempt);
  std::error_code ignored;
  fs::remove(path_, ignored);
}

}  // namespace ddp::launch
