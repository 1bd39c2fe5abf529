#include "trainer/snapshot/remote_snapshots.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "trainer/metrics/text.h"
#include "trainer/model/load/run_folder.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/runtime/log/message.h"
#include "trainer/storage/remote_folder.h"
#include "trainer/storage/retry.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kPatienceAtStart{30'000};

std::string object_name(const std::string& path) { return fs::path(path).filename().string(); }

/// The step in `<name>.step-<n>`, or nothing.
std::optional<int64_t> step_of(const std::string& object, const std::string& name) {
  const std::string prefix = fmt::format("{}.step-", name);
  if (!object.starts_with(prefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = object.data() + object.size();
  const auto parsed = std::from_chars(object.data() + prefix.size(), end, step);
  if (parsed.ec != std::errc{} || parsed.ptr != end || step < 0) return std::nullopt;
  return step;
}

// A file that never was a snapshot is the user's mistake; damage is reported by whoever opens it.
void require_snapshot(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || fs::file_size(path, ignored) == 0) return;
  bool foreign = false;
  try {
    foreign = !SafetensorsFile(path).metadata().contains("format_version");
  } catch (const RunError&) {
    foreign = !begins_as_safetensors(path);
  }
  if (foreign)
    throw UserError(path + ": not a snapshot; give the trainer_config.snapshot_path of a run");
}

}  // namespace

std::string local_snapshot_path(const TrainerConfig& config) {
  if (!is_remote(config.snapshot_path)) return behind_links(config.snapshot_path);
  const std::string& url = config.snapshot_path;
  const auto colon = url.find("://");
  return fmt::format("{}/{}/{}", config.snapshot_cache, url.substr(0, colon),
                     url.substr(colon + 3));
}

FetchedSnapshot::FetchedSnapshot(const std::string& path) : file_(path) {
  if (!is_remote(path)) {
    require_snapshot(path);
    file_ = chosen_snapshot(path);
    return;
  }
  const RemotePath remote = split_remote(path);
  folder_.emplace("the snapshot");
  file_ = fmt::format("{}/{}", folder_->path(), remote.name);
  const auto folder = open_remote_folder(remote.folder);
  // `<name>` itself is not an object: the newest of its steps is meant.
  std::string object = remote.name;
  int64_t newest = -1;
  for (const auto& entry : folder->list()) {
    const auto step = step_of(entry.name, remote.name);
    if (!step || *step < newest) continue;
    newest = *step;
    object = entry.name;
  }
  folder->download(object, file_);
  for (const auto& shard : shard_paths(file_)) folder->download(object_name(shard), shard);
}

RemoteSnapshots::RemoteSnapshots(const std::string& url, const SnapshotFolder& local, Log& log)
    : remote_(split_remote(url)),
      local_(local),
      log_(log),
      folder_(open_remote_folder(remote_.folder)) {}

RemoteSnapshots::~RemoteSnapshots() = default;

std::vector<std::string> RemoteSnapshots::objects_by_age(
    const std::vector<RemoteEntry>& entries) const {
  std::vector<std::string> objects;
  for (const auto& entry : entries) {
    if (step_of(entry.name, remote_.name)) objects.push_back(entry.name);
  }
  std::sort(objects.begin(), objects.end(), [this](const auto& a, const auto& b) {
    return *step_of(a, remote_.name) > *step_of(b, remote_.name);
  });
  return objects;
}

/// The list in the store; nothing when there is none. Throws RemoteError.
std::optional<Manifest> RemoteSnapshots::fetch_manifest(
    const std::vector<RemoteEntry>& entries) const {
  const std::string name = fmt::format("{}.manifest.json", remote_.name);
  const bool there = std::any_of(entries.begin(), entries.end(),
                                 [&](const auto& entry) { return entry.name == name; });
  if (!there) return std::nullopt;
  const std::string file = local_.path() + ".fetched";
  folder_->download(name, file);
  const auto manifest = read_manifest(file);
  std::error_code ignored;
  fs::remove(file, ignored);
  return manifest;
}

/// The shards of an index, under their own names; those that are here already stay, and what is
/// wrong with them is said by whoever opens the snapshot.
std::vector<std::string> RemoteSnapshots::fetch_shards(const std::string& index) {
  const auto shards = shard_paths(index);
  for (const auto& shard : shards) {
    if (!file_exists(shard)) folder_->download(object_name(shard), shard);
  }
  return shards;
}

// First next to `file`: that one stays unless the object is whole and of the store's run.
bool RemoteSnapshots::download(const std::string& object, const std::string& file) {
  const std::string fetched = local_.path() + ".fetched";
  const auto pass_over = [&](const std::string& why) {
    log_.warning(fmt::format("skipping {}/{}: {}", remote_.folder, object, why));
    std::error_code ignored;
    fs::remove(fetched, ignored);
    return false;
  };
  folder_->download(object, fetched);
  std::vector<std::string> shards;
  try {
    shards = fetch_shards(fetched);
    const auto snapshot = open_snapshot(fetched);
    if (run_id_ && snapshot.meta.run_id != *run_id_)
      return pass_over("it belongs to another run than the store's manifest");
    run_id_ = snapshot.meta.run_id;
  } catch (const RemoteError& error) {
    if (error.failure() != RemoteFailure::kMissing) throw;
    return pass_over(error.what());
  } catch (const RunError& error) {
    return pass_over(error.what());
  }
  move_file(fetched, file);
  fetched_.push_back({file, object});
  for (const auto& shard : shards) fetched_.push_back({shard, object_name(shard)});
  return true;
}

// Not having it costs the run nothing. One beyond the newest is not part of what is resumed.
void RemoteSnapshots::fetch_best(const std::string& best) {
  try {
    const auto step = step_of(best, remote_.name);
    const std::string file = older_snapshot_path(local_.path(), step.value_or(0));
    if (!step || file_exists(file) || open_snapshot(local_.path()).meta.step <= *step) return;
    log_.info(fmt::format("Fetching the best snapshot, {}/{}", remote_.folder, best));
    download(best, file);
  } catch (const std::exception& error) {
    log_.warning(fmt::format("cannot fetch the best snapshot: {}", error.what()));
  }
}

std::set<std::string> RemoteSnapshots::removable(const std::vector<std::string>& objects) const {
  int64_t start = -1;
  try {
    const auto newest = open_snapshot(local_.path());
    if (run_id_ && newest.meta.run_id != *run_id_) return {};
    start = newest.meta.step;
  } catch (const std::exception&) {
    return {};  // training from scratch next to something: leave it alone
  }
  std::set<std::string> result;
  for (std::size_t i = local_.limit(); i < objects.size(); ++i) {
    const int64_t step = *step_of(objects[i], remote_.name);
    if (step < start) result.insert(objects[i]);
  }
  return result;
}

std::vector<std::string> RemoteSnapshots::fetch_newer_than(int64_t here) {
  remove_stale_temporaries(local_.path() + ".fetched");
  std::vector<RemoteEntry> entries;
  retry({}, kPatienceAtStart, {}, [&] { entries = folder_->list(); });
  const auto objects = objects_by_age(entries);
  if (objects.empty()) return objects;
  const auto manifest = fetch_manifest(entries);
  if (manifest) run_id_ = manifest->run_id;
  for (const auto& object : objects) {
    if (*step_of(object, remote_.name) <= here) break;
    log_.info(fmt::format("Fetching {}/{}", remote_.folder, object));
    if (download(object, local_.path())) break;
  }
  const std::string best = manifest ? manifest->best_object : "";
  if (std::find(objects.begin(), objects.end(), best) != objects.end()) fetch_best(best);
  return objects;
}

void RemoteSnapshots::fetch_newest() {
  int64_t here = -1;
  if (file_exists(local_.path())) {
    try {
      here = open_snapshot(local_.path()).meta.step;
    } catch (const RunError&) {
      here = -1;  // damaged: the run itself reports it, unless the store has a good one
    }
  }
  std::vector<std::string> objects;
  try {
    objects = fetch_newer_than(here);
  } catch (const RemoteError& error) {
    if (error.failure() != RemoteFailure::kAway || here < 0) {
      throw RunError(fmt::format("trainer_config.snapshot_path: {}{}", error.what(),
                                 error.failure() == RemoteFailure::kAway
                                     ? "; there is no local copy, and training from scratch could "
                                       "overwrite what is stored; retry when the store is reachable"
                                     : ""));
    }
    log_.warning(fmt::format("{}; resuming from the local copy of step {}, uploaded later",
                             error.what(), here));
  }
  MirrorOptions options;
  options.owns = [old = removable(objects)](const std::string& object) {
    return old.count(stem_of_shard(object).value_or(object)) > 0;
  };
  options.log = [this](LogLevel level, const std::string& text) { log_.write(level, text); };
  mirror_ = std::make_unique<RemoteMirror>(std::move(folder_), std::move(options));
  for (const auto& file : fetched_) mirror_->adopt(file);
}

void RemoteSnapshots::publish() {
  if (!mirror_ || local_.entries().empty()) return;
  std::vector<MirroredFile> files;
  try {
    files = files_to_send();
  } catch (const std::exception& error) {
    log_.warning(fmt::format("not uploaded before the next snapshot: {}", error.what()));
    return;
  }
  mirror_->publish(files, {local_.manifest_path(), fmt::format("{}.manifest.json", remote_.name)});
}

std::vector<MirroredFile> RemoteSnapshots::files_to_send() const {
  std::vector<MirroredFile> files;
  for (const auto& entry : local_.entries()) {
    // An index comes after what it names: a reader of the store never misses a shard.
    for (const auto& shard : shard_paths(local_.path_of(entry)))
      files.push_back({shard, object_name(shard)});
    files.push_back({local_.path_of(entry), older_snapshot_path(remote_.name, entry.step)});
  }
  return files;
}

void RemoteSnapshots::finish(milliseconds limit, const std::function<bool()>& go_on) {
  if (!mirror_) return;
  constexpr milliseconds kSlice{500};
  std::vector<std::string> missing;
  for (milliseconds waited{0}; waited < limit; waited += kSlice) {
    missing = mirror_->flush(kSlice);
    if (missing.empty() || !go_on()) break;
  }
  if (missing.empty()) {
    const MirrorCounts sent = mirror_->counts();
    log_.info(fmt::format("All snapshots are in {} ({}, {} uploaded)", remote_.folder,
                          counted(sent.files, "object"),
                          size_text(static_cast<double>(sent.bytes))));
    return;
  }
  log_.warning(fmt::format(
      "not in {} yet: {}; the files are in {}, the next run on this machine uploads them",
      remote_.folder, fmt::join(missing, ", "), fs::path(local_.path()).parent_path().string()));
}

}  // namespace ddp::train
