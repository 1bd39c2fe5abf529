#include "trainer/snapshot/snapshot_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

std::string name_of(const std::string& file) { return fs::path(file).filename().string(); }

fs::path folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

/// The digits of `.step-<n>`, or of `.step-<n>-<m>`, as name_for_older() gives them.
bool is_step_name(const std::string& file, const std::string& path) {
  const std::string_view number =
      std::string_view(file).substr(older_snapshot_path(path, 0).size() - 1);
  const auto dash = number.find('-');
  return all_digits(number.substr(0, dash)) &&
         (dash == std::string_view::npos || all_digits(number.substr(dash + 1)));
}

/// Gives a damaged file another name; the old one stays for a moment where it gets a new owner.
bool set_aside(const std::string& file, const std::string& target, bool name_is_taken) {
  ::unlink(target.c_str());
  if (::link(file.c_str(), target.c_str()) != 0)
    return std::rename(file.c_str(), target.c_str()) == 0;
  return name_is_taken || ::unlink(file.c_str()) == 0;
}

/// The first names, and how many more there are.
std::string list_of(std::vector<std::string> names) {
  constexpr std::size_t kMost = 5;
  const std::size_t more = names.size() > kMost ? names.size() - kMost : 0;
  std::sort(names.begin(), names.end());
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

void prepare_snapshot_folder(const std::string& path) {
  try {
    fs::create_directories(folder_of(path));
    if (fs::is_directory(path)) throw RunError(path + ": is a directory");
    remove_stale_temporaries(path + ".probe");
    const AtomicFile probe(path + ".probe");  // not the name that is the sign of a save cut short
  } catch (const std::exception& error) {
    throw UserError(
        fmt::format("trainer_config.snapshot_path: cannot write snapshots: {}; choose another path "
                    "or fix its permissions",
                    error.what()));
  }
}

std::vector<std::size_t> superseded(const std::vector<SnapshotEntry>& entries, std::size_t limit) {
  std::vector<std::size_t> result;
  const SnapshotEntry* best = best_entry(entries);
  for (std::size_t i = entries.size(); i > std::max<std::size_t>(limit, 1); --i) {
    if (&entries[i - 1] != best) result.push_back(i - 1);
  }
  return result;
}

SnapshotFolder::SnapshotFolder(std::string path, int64_t limit, Log& log)
    : path_(std::move(path)), limit_(static_cast<std::size_t>(limit)), log_(log) {}

std::string SnapshotFolder::path_of(const SnapshotEntry& entry) const {
  return (folder_of(path_) / entry.file).string();
}

std::vector<std::string> SnapshotFolder::older_files() const {
  auto files = files_with(path_, ".step-");
  std::erase_if(files,
                [this](const auto& file) { return !is_step_name(name_of(file), name_of(path_)); });
  return files;
}

// Nobody knows yet whether they are whole: a process may have died while it wrote one.
SnapshotFolder::Snapshots SnapshotFolder::copies_in(const Copies& in_memory) const {
  Snapshots copies;
  for (const auto& files : in_memory) {
    try {
      copies.push_back(files.size() == 1 ? peek_snapshot(files.front()) : peek_shards(files));
    } catch (const std::exception& error) {
      log_.debug(fmt::format("no complete copy in memory: {}", error.what()));
    }
  }
  return copies;
}

/// The run to resume where the newest file is damaged or missing. `listed`: the manifest counts,
/// which the run writes before its first save if it finds files of another one.
std::optional<std::string> SnapshotFolder::run_of(const Snapshots& others, bool listed,
                                                  const std::vector<Damage>& damages) const {
  const auto manifest = read_manifest(manifest_path());
  if (listed && manifest && manifest->run_id) return manifest->run_id;
  std::set<std::string> ids;
  for (const auto& other : others) ids.insert(other.meta.run_id);
  if (ids.empty()) return std::nullopt;
  // Without a manifest the newest may be of a later run than the older files.
  const bool in_folder = fs::path(others.front().path).parent_path() == folder_of(path_);
  const bool told = !listed || manifest || !in_folder;
  if (ids.size() == 1 && told) return *ids.begin();
  throw RunError(fmt::format(
      "{}; without {} it is unknown whether the older files next to it belong to the same run; "
      "rename the one to resume from to {}, or move all of them away to train from scratch",
      damages.empty() ? path_ + " is missing, a save was interrupted" : damages.front().reason,
      name_of(manifest_path()), path_));
}

bool SnapshotFolder::is_ours(const OpenedSnapshot& snapshot) const {
  const std::string name = name_of(snapshot.path);
  return (run_id_ && snapshot.meta.run_id == *run_id_) ||
         std::any_of(entries_.begin(), entries_.end(),
                     [&](const auto& entry) { return entry.file == name; });
}

/// A step beyond the newest one's was made before the user put an older file in its place.
void SnapshotFolder::keep_ours(Snapshots& older, const OpenedSnapshot* newest) {
  std::erase_if(older, [this](const auto& snapshot) { return !is_ours(snapshot); });
  if (newest == nullptr) return;
  const auto beyond =
      std::erase_if(older, [&](const auto& other) { return other.meta.step > newest->meta.step; });
  went_back_ = beyond > 0;
}

std::optional<OpenedSnapshot> SnapshotFolder::find(const Copies& in_memory) {
  std::vector<Damage> damages;
  Snapshots candidates;
  const auto add = [&](Snapshots& to, const std::string& file) {
    try {
      to.push_back(peek_snapshot(file));
    } catch (const RunError& error) {
      damages.push_back({file, error.what()});
    } catch (const UserError&) {
      if (candidates.empty()) throw;  // else it is not needed
    }
  };
  const bool there = file_exists(path_);
  // A temporary file next to only older snapshots indicates an interrupted save.
  const bool cut = !there && !files_with(path_, ".tmp.").empty();
  if (there) add(candidates, path_);
  Snapshots older;
  if (there || cut) {
    for (const auto& file : older_files()) add(older, file);
  }
  Snapshots copies = copies_in(in_memory);
  const OpenedSnapshot* newest = candidates.empty() ? nullptr : &candidates.front();
  if (!run_id_ && newest != nullptr) run_id_ = newest->meta.run_id;
  if (!run_id_) run_id_ = run_of(older.empty() ? copies : older, there || cut, damages);
  keep_ours(older, newest);
  std::erase_if(copies, [this](const auto& copy) { return !is_ours(copy); });
  std::move(older.begin(), older.end(), std::back_inserter(candidates));
  std::set<std::string> of_copies;
  for (const auto& copy : copies) of_copies.insert(copy.path);
  std::move(copies.begin(), copies.end(), std::back_inserter(candidates));
  auto found = newest_good(std::move(candidates), of_copies, damages);
  if (!found && !damages.empty()) fail_all_damaged(damages);
  if (!found) return found;
  quarantine(damages, *found);
  scan();
  write_manifest();  // of what is here now, also when it was fetched
  return found;
}

void SnapshotFolder::begin_run(const std::string& config_json, const std::string& data_sha256,
                               const RoundFence& round) {
  round_ = round;
  name_run(config_json, data_sha256);
  claim_attempt();
}

void SnapshotFolder::name_run(const std::string& config_json, const std::string& data_sha256) {
  if (run_id_ && !went_back_) return;
  std::set<std::string> ids{run_id()};
  std::vector<std::string> others;
  for (const auto& file : older_files()) {
    try {
      ids.insert(peek_snapshot(file).meta.run_id);
      others.push_back(name_of(file));
    } catch (const UnreadableError&) {
      throw;  // its id is not to be given to another run
    } catch (const std::exception&) {
      continue;
    }
  }
  for (int number = 0; ids.contains(run_id()); ++number)
    run_id_ = new_run_id(config_json, data_sha256, number);
  entries_.clear();
  scan();
  if (others.empty()) return;
  const std::string what =
      std::exchange(went_back_, false)
          ? "is older than other files of its run: training continues from it as a new run"
          : "is missing: training starts from scratch";
  log_.warning(fmt::format(
      "{} {}; older files of another run are left alone: {}; to resume from one of them, rename it "
      "to {}",
      path_, what, list_of(std::move(others)), path_));
  write_manifest();
}

// By step, newest first; of equal ones the first stays first: the user's name before others.
std::optional<OpenedSnapshot> SnapshotFolder::newest_good(std::vector<OpenedSnapshot> candidates,
                                                          const std::set<std::string>& in_memory,
                                                          std::vector<Damage>& damages) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.meta.step > b.meta.step; });
  for (auto& candidate : candidates) {
    try {
      candidate.file->verify_checksum();
      return std::move(candidate);
    } catch (const RunError& error) {
      // A truncated copy in memory does not count as damage: its other half is whole.
      if (!in_memory.contains(candidate.path)) damages.push_back({candidate.path, error.what()});
    }
  }
  return std::nullopt;
}

void SnapshotFolder::fail_all_damaged(const std::vector<Damage>& damages) const {
  for (std::size_t i = 0; i + 1 < damages.size(); ++i)
    log_.warning("damaged snapshot: " + damages[i].reason);
  throw RunError(fmt::format(
      "{}; {}", damages.back().reason,
      damages.size() == 1 ? "there is no older snapshot; move it away to train from scratch"
                          : "no good snapshot is left; move the files away to train from scratch"));
}

void SnapshotFolder::quarantine(const std::vector<Damage>& damages, OpenedSnapshot& good) const {
  for (const auto& damage : damages) {
    log_.warning("damaged snapshot: " + damage.reason);
    const bool newest = damage.file == path_;
    const std::string heir = newest ? newest_older(good.path) : "";
    const std::string target = damage.file + ".damaged";
    const bool aside = set_aside(damage.file, target, !heir.empty());
    if (aside) log_.warning(fmt::format("moved {} to {}", damage.file, target));
    if (newest) log_.warning(fmt::format("falling back to the previous snapshot: {}", good.path));
    // Its name goes to the next one: without it, a restart before the next save would start anew.
    if (!aside || heir.empty()) continue;
    move_file(heir, path_);
    if (good.path == heir) good.path = path_;
  }
}

/// `good` if it is in the folder, else the newest older snapshot of the run that is whole, or
/// "".
std::string SnapshotFolder::newest_older(const std::string& good) const {
  const auto older = older_files();
  if (std::find(older.begin(), older.end(), good) != older.end()) return good;
  Snapshots candidates;
  for (const auto& file : older) {
    try {
      candidates.push_back(peek_snapshot(file));
      if (!is_ours(candidates.back())) candidates.pop_back();
    } catch (const UnreadableError&) {
      throw;
    } catch (const std::exception&) {
      continue;
    }
  }
  std::vector<Damage> ignored;
  const auto found = newest_good(std::move(candidates), {}, ignored);
  return found ? found->path : "";
}

// What cannot be read, or is of another run, is not counted, and so never deleted. The newest has
// to be: the next one would replace it without keeping it.
void SnapshotFolder::scan() {
  std::vector<SnapshotEntry> present;
  auto files = older_files();
  files.push_back(path_);
  for (const auto& file : files) {
    try {
      const OpenedSnapshot snapshot = peek_snapshot(file);
      if (file == path_ || is_ours(snapshot)) present.push_back(entry_of(file, snapshot.meta));
    } catch (const UnreadableError&) {
      if (file == path_ && file_exists(file)) throw;
    } catch (const std::exception&) {
      continue;
    }
  }
  entries_ = std::move(present);
  const std::string newest = name_of(path_);
  std::sort(entries_.begin(), entries_.end(), [&](const auto& a, const auto& b) {
    if ((a.file == newest) != (b.file == newest)) return a.file == newest;
    return a.step > b.step;
  });
}

void SnapshotFolder::remove(std::size_t index) {
  const std::string file = path_of(entries_[index]);
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index));
  try {
    if (!file_exists(file)) return;
    const auto shards = shard_paths(file);
    if (::unlink(file.c_str()) != 0) throw RunError(std::strerror(errno));
    const auto needed = shards.empty() ? std::set<std::string>{} : needed_shards();
    for (const auto& shard : shards) {  // if one stays, no snapshot needs it
      if (!needed.contains(name_of(shard))) ::unlink(shard.c_str());
    }
  } catch (const std::exception& error) {
    log_.warning(fmt::format("cannot delete the old snapshot {}: {}", file, error.what()));
  }
}

/// `<name>.step-<n>`, or `<name>.step-<n>-2`, ... where a file that is not ours has that name.
std::string SnapshotFolder::name_for_older(int64_t step) const {
  const std::string usual = older_snapshot_path(path_, step);
  std::string file = usual;
  const auto is_foreign = [&] {
    const bool ours = std::any_of(entries_.begin(), entries_.end(),
                                  [&](const auto& entry) { return entry.file == name_of(file); });
    return !ours && file_exists(file);
  };
  for (int number = 2; is_foreign(); ++number) file = fmt::format("{}-{}", usual, number);
  return file;
}

}  // namespace ddp::train
