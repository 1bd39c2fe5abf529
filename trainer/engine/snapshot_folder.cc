#include "trainer/engine/snapshot_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/runtime/atomic_file.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

fs::path folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

/// Files in the folder of `path` whose names begin with its name and `suffix`.
std::vector<std::string> files_with(const std::string& path, const std::string& suffix) {
  const std::string prefix = fs::path(path).filename().string() + suffix;
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder_of(path), error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().filename().string().starts_with(prefix)) found.push_back(it->path().string());
  }
  return found;
}

bool is_step_name(const std::string& file, const std::string& path) {
  const std::string digits = file.substr(older_snapshot_path(path, 0).size() - 1);
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
}

SnapshotEntry entry_of(const std::string& file, const SnapshotMeta& meta) {
  SnapshotEntry entry{fs::path(file).filename().string(), meta.step, meta.cursor.epoch, {}, 0};
  if (meta.last_eval && meta.last_eval->step == meta.step) entry.eval_loss = meta.last_eval->loss;
  std::error_code ignored;
  const auto bytes = fs::file_size(file, ignored);
  if (!ignored) entry.bytes = bytes;
  return entry;
}

/// Gives a damaged file another name; the old one stays for a moment where it gets a new owner.
bool set_aside(const std::string& file, const std::string& target, bool name_is_taken) {
  ::unlink(target.c_str());
  if (::link(file.c_str(), target.c_str()) != 0)
    return std::rename(file.c_str(), target.c_str()) == 0;
  return name_is_taken || ::unlink(file.c_str()) == 0;
}

/// Header only. Throws as open_snapshot() does.
OpenedSnapshot peek(const std::string& file) {
  OpenedSnapshot opened{file, std::make_unique<SafetensorsFile>(file), {}};
  opened.meta = SnapshotMeta::from_metadata(opened.file->metadata(), file,
                                            [&] { opened.file->verify_checksum(); });
  return opened;
}

}  // namespace

std::string older_snapshot_path(const std::string& path, int64_t step) {
  return fmt::format("{}.step-{}", path, step);
}

void prepare_snapshot_folder(const std::string& path) {
  try {
    fs::create_directories(folder_of(path));
    if (fs::is_directory(path)) throw RunError(path + ": is a folder");
    const AtomicFile probe(path + ".probe");  // not the name that is the sign of a save cut short
  } catch (const std::exception& error) {
    throw UserError(fmt::format(
        "trainer_config.snapshot_path: snapshots cannot be written: {}; choose another path or "
        "change its permissions",
        error.what()));
  }
}

const SnapshotEntry* best_entry(const std::vector<SnapshotEntry>& entries) {
  const SnapshotEntry* best = nullptr;
  for (const auto& entry : entries) {
    if (entry.eval_loss && (best == nullptr || *entry.eval_loss <= *best->eval_loss)) best = &entry;
  }
  return best;
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
  std::erase_if(files, [this](const auto& file) {
    return !is_step_name(fs::path(file).filename().string(), fs::path(path_).filename().string());
  });
  return files;
}

std::optional<OpenedSnapshot> SnapshotFolder::find(const std::vector<std::string>& in_memory) {
  std::vector<OpenedSnapshot> candidates;
  std::vector<Damage> damages;
  const auto consider = [&](const std::string& file) {
    try {
      candidates.push_back(peek(file));
    } catch (const RunError& error) {
      damages.push_back({file, error.what()});
    }
  };
  std::error_code ignored;
  const bool newest_there = fs::exists(path_, ignored);
  const auto older = older_files();
  if (newest_there) consider(path_);
  // A temporary file beside older snapshots alone is the sign that a save was cut.
  if (newest_there || !files_with(path_, ".tmp.").empty())
    std::for_each(older.begin(), older.end(), consider);
  for (const auto& file : in_memory) {
    try {
      candidates.push_back(peek(file));
    } catch (const std::exception& error) {
      log_.debug(fmt::format("no whole copy in memory: {}", error.what()));
    }
  }
  auto found = newest_good(std::move(candidates), in_memory, damages);
  if (!found && !damages.empty()) fail_all_damaged(damages);
  if (!found && !older.empty()) {
    log_.warning(fmt::format("{} is gone, {} is not used; rename it to go on from it", path_,
                             older.front()));
  }
  if (found) quarantine(damages, *found);
  scan();
  if (!entries_.empty()) write_manifest();  // of what is here now, also when it was fetched
  return found;
}

// By step, newest first; of equal ones the first stays first: the user's name before others.
std::optional<OpenedSnapshot> SnapshotFolder::newest_good(std::vector<OpenedSnapshot> candidates,
                                                          const std::vector<std::string>& in_memory,
                                                          std::vector<Damage>& damages) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.meta.step > b.meta.step; });
  for (auto& candidate : candidates) {
    try {
      candidate.file->verify_checksum();
      return std::move(candidate);
    } catch (const RunError& error) {
      // A copy in memory that was cut short is no damage: its other half is whole.
      if (std::find(in_memory.begin(), in_memory.end(), candidate.path) == in_memory.end())
        damages.push_back({candidate.path, error.what()});
    }
  }
  return std::nullopt;
}

void SnapshotFolder::fail_all_damaged(const std::vector<Damage>& damages) const {
  for (std::size_t i = 0; i + 1 < damages.size(); ++i)
    log_.warning("snapshot is damaged: " + damages[i].reason);
  throw RunError(fmt::format(
      "{}; {}", damages.back().reason,
      damages.size() == 1 ? "there is no older one; move it away to train from scratch"
                          : "no good snapshot is left; move the files away to train from scratch"));
}

void SnapshotFolder::quarantine(const std::vector<Damage>& damages, OpenedSnapshot& good) const {
  for (const auto& damage : damages) {
    log_.warning("snapshot is damaged: " + damage.reason);
    const bool newest = damage.file == path_;
    const std::string heir = newest ? newest_older(good.path) : "";
    const std::string target = damage.file + ".damaged";
    const bool aside = set_aside(damage.file, target, !heir.empty());
    if (aside) log_.warning(fmt::format("moved {} to {}", damage.file, target));
    if (newest) log_.warning(fmt::format("falling back to the snapshot before it: {}", good.path));
    // Its name goes to the next one: without it, a restart before the next save would start anew.
    if (!aside || heir.empty()) continue;
    move_file(heir, path_);
    if (good.path == heir) good.path = path_;
  }
}

/// `good` when it lies in the folder, else the newest of the older snapshots that is whole, or "".
std::string SnapshotFolder::newest_older(const std::string& good) const {
  const auto older = older_files();
  if (std::find(older.begin(), older.end(), good) != older.end()) return good;
  std::vector<OpenedSnapshot> candidates;
  for (const auto& file : older) {
    try {
      candidates.push_back(peek(file));
    } catch (const std::exception&) {
      continue;
    }
  }
  std::vector<Damage> ignored;
  const auto found = newest_good(std::move(candidates), {}, ignored);
  return found ? found->path : "";
}

// What cannot be read is not counted, and so never deleted.
void SnapshotFolder::scan() {
  entries_.clear();
  auto files = older_files();
  files.push_back(path_);
  for (const auto& file : files) {
    try {
      entries_.push_back(entry_of(file, peek(file).meta));
    } catch (const std::exception&) {
      continue;
    }
  }
  const std::string newest = fs::path(path_).filename().string();
  std::sort(entries_.begin(), entries_.end(), [&](const auto& a, const auto& b) {
    if ((a.file == newest) != (b.file == newest)) return a.file == newest;
    return a.step > b.step;
  });
}

void SnapshotFolder::remove(std::size_t index) {
  const std::string file = path_of(entries_[index]);
  if (::unlink(file.c_str()) != 0 && errno != ENOENT)
    log_.warning(fmt::format("cannot delete the old snapshot {}: {}", file, std::strerror(errno)));
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index));
}

// The best goes last, the newest never.
bool SnapshotFolder::delete_oldest() {
  auto candidates = superseded(entries_, 1);
  if (candidates.empty() && entries_.size() > 1) candidates.push_back(entries_.size() - 1);
  if (candidates.empty()) return false;
  log_.warning(fmt::format("the disk is full: deleting the snapshot of step {} to make room",
                           entries_[candidates.front()].step));
  remove(candidates.front());
  return true;
}

void SnapshotFolder::publish(const SnapshotMeta& meta, const std::vector<TensorBytes>& tensors,
                             const PublishObserver& at) {
  const std::string newest = fs::path(path_).filename().string();
  const bool replaces_one = !entries_.empty() && entries_.front().file == newest;
  const bool is_best = !entries_.empty() && &entries_.front() == best_entry(entries_);
  const bool keep = replaces_one && (limit_ > 1 || is_best) && entries_.front().step != meta.step;
  const std::string kept = keep ? older_snapshot_path(path_, entries_.front().step) : "";
  while (true) {
    try {
      publish_safetensors(path_, kept, meta.to_metadata(), tensors, at);
      break;
    } catch (const NoSpaceError&) {
      if (!delete_oldest()) throw;
    }
  }
  if (keep) {
    const std::string name = fs::path(kept).filename().string();
    std::erase_if(entries_, [&](const auto& entry) { return entry.file == name; });
    entries_.front().file = name;
  } else if (replaces_one) {
    entries_.erase(entries_.begin());
  }
  entries_.insert(entries_.begin(), entry_of(path_, meta));
  for (const auto index : superseded(entries_, limit_)) remove(index);
  write_manifest();
}

// A snapshot that is whole on the disk counts, whether it is listed or not.
void SnapshotFolder::write_manifest() const {
  try {
    const std::string text = manifest();
    AtomicFile file(manifest_path());
    file.write(text.data(), text.size());
    file.commit();
  } catch (const RunError& error) {
    log_.warning(fmt::format("the list of snapshots is not up to date: {}", error.what()));
  }
}

std::string SnapshotFolder::manifest() const {
  Json list = Json::array();
  for (const auto& entry : entries_) {
    list.push_back(
        {{"file", entry.file},
         {"object", older_snapshot_path(fs::path(path_).filename().string(), entry.step)},
         {"step", entry.step},
         {"epoch", entry.epoch},
         {"eval_loss", entry.eval_loss ? Json(*entry.eval_loss) : Json()},
         {"bytes", entry.bytes}});
  }
  const SnapshotEntry* best = best_entry(entries_);
  const Json manifest = {{"newest", entries_.front().file},
                         {"best", best != nullptr ? Json(best->file) : Json()},
                         {"snapshots", list}};
  return manifest.dump(2) + "\n";
}

}  // namespace ddp::train
